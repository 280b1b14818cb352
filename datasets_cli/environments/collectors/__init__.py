"""Collectors: batches of rows from environments, in this process or in several."""
