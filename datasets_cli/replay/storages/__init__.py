"""Storages: they store rows and return copies."""
