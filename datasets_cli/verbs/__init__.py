"""Verbs, one file each: the arguments, the result and the function."""
