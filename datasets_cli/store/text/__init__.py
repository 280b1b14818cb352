"""Text: the codes of each column, and one vocabulary of the dataset, the same in both layouts."""
