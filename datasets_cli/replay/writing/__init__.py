"""Writing: rows are placed in a storage, and the sampler is notified."""
