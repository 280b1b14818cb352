"""Installs datasets: checks sources, fetches files, writes rows and commits them."""
