"""What specs are made of: shapes and what changes them, spaces, numbers, devices."""
