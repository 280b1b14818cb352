"""Remote files: what they are, how they are fetched and checked."""
