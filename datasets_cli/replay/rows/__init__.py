"""The rows of a buffer: drawn for batches, numbered, written and replaced."""
