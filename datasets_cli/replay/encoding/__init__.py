"""Rows as columns and as bytes: their form, the batches made of them, and their files."""
