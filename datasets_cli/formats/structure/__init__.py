"""Checks of a file's structure before its content is read: sizes, links, references."""
