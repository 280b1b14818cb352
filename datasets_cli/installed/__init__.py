"""What is installed: its condition, finding, listing, verifying, changing and deleting it."""
