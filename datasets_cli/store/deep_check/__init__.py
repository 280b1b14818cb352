"""Reading every value of a dataset to find what checksums cannot: wrong when it was written."""
