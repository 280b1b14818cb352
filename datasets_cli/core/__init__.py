"""Shared basics: options, JSON, progress, quantities, system errors."""
