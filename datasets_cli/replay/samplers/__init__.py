"""Samplers: the choice of the rows of a batch, and the order of an epoch."""
