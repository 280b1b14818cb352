"""The rows of a buffer: drawn for batches, in a format, numbered, written and replaced."""
