"""Batches: rows are drawn and gathered, collated, transformed and returned in a format."""
