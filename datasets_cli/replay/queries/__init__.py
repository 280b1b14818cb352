"""Queries: conditions on trajectories, as text or of `traj`; queries and views by conditions."""
