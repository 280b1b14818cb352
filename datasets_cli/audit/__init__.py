"""The audit: what is wrong with published data, found in the rows by rules."""
