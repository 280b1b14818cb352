"""Readers of publishers' file formats, independent of reinforcement learning."""
