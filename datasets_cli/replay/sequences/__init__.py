"""Sequences of a trajectory's rows with returns to go, timesteps and masks; padded at its edge."""
