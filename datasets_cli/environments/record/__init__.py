"""Recording: episodes of an environment become a dataset of the user."""
