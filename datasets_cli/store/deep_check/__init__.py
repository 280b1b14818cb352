"""The deep check: reads every value of a dataset, to find values that were written wrong."""
