"""Samplers: they draw the rows of a batch."""
