"""Transforms: functions from batch to batch, put into a replay buffer or called by hand."""
