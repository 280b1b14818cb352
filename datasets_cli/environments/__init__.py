"""Gymnasium environments that read and return TensorDicts: one, or several side by side."""
