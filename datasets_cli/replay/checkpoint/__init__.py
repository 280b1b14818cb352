"""Checkpoints of a replay buffer: its state, and the files of a dump."""
