"""Which datasets there are: the families, their catalogues, and what a typed name means."""
