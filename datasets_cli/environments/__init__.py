"""Environments of gymnasium as functions of TensorDicts: one, or several side by side."""
