"""Readers of publishers' file formats, which know nothing of reinforcement learning."""
