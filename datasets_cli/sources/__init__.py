"""Remote files: URLs and checksums, download, and verification."""
