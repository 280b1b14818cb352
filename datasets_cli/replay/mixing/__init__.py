"""Several datasets, views and buffers sampled as one."""
