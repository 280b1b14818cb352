"""Remote files: their addresses and checksums, download, and check."""
