"""Frames: the pictures of a trajectory, as a GIF, a sheet or a video."""
