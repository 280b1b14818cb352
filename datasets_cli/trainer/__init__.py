"""A small training loop, and the replay buffer of the loop."""
