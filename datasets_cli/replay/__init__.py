"""Replay buffers: storages, samplers, writers."""
