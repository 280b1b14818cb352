"""Specs: what tensors of an environment or a dataset are; from and as spaces, and JSON."""
