"""Reads and writes the files of other tools: one module for each format."""
