"""Plots: charts of what is in one dataset or two, drawn into a file or a terminal."""
