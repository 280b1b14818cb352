"""Whole trajectories of a dataset: a table of them, and one after the other as batches."""
