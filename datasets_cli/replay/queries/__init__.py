"""Queries: conditions on trajectories, as text or of `traj`, and what they find."""
