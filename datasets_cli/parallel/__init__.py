"""Parallel backends, their worker processes, and the user's code on its way to them."""
