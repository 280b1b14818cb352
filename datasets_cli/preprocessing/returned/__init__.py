"""What a function returned: its columns, the rows that it kept, and these without gaps."""
