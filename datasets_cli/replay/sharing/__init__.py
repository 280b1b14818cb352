"""Rows that several processes share: one writes at a time, all read."""
