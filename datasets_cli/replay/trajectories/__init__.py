"""Trajectories: their first and last rows, and the table of a dataset's trajectories."""
