"""Queries: trajectories that a condition of `traj` holds for, as TorchRL's users write it."""
