"""Parallel backends, their worker processes, and the transfer of the user's code."""
