"""Pipelines: what `rlds preprocess` does without a function, as data and as transforms."""
