"""Trajectories: where they begin and end among rows."""
