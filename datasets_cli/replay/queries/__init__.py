"""Queries: conditions on trajectories, as text or of `traj`, what they find, and views of that."""
