"""Transforms: functions from batch to batch, used by a replay buffer or called directly."""
