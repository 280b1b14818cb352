"""Verbs: one file each, with what it takes, what it returns, and the function."""
