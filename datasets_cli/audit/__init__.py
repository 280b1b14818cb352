"""The audit: rules that find defects in the rows of published datasets."""
