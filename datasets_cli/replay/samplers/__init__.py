"""Samplers: which rows a batch has, and the order of an epoch."""
