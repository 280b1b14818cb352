"""Several replay buffers sampled as one."""
