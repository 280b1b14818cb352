"""A small loop of collecting and learning, and how a replay buffer takes part in it."""
