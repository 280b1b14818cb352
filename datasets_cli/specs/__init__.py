"""Specs: what the tensors of an environment or a dataset are: shape, domain, dtype, device."""
