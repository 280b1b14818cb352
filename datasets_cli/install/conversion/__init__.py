"""Conversion: raw files become the rows of a folder that is ready to be committed."""
