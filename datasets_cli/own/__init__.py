"""Data of one's own: steps that no recipe reads, written as a dataset."""
