"""Replay buffers: a storage, a sampler and a writer combined."""
