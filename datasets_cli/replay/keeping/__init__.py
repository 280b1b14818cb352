"""Keeping a replay buffer: in the files of a dump, or in a state beside a model's."""
