"""The rows of a dataset: all of them, or a selection that is read as if it were a dataset."""
