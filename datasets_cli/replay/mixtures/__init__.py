"""Mixtures: several storages as one, drawn by weights."""
