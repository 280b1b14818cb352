"""Recording episodes of an environment into a dataset of one's own."""
