"""Trajectories: where they begin and end among rows, and the table of a dataset's."""
