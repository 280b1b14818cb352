"""What is read of a file before its content: sizes that it says, links, references."""
