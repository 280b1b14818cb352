"""The layouts on the disk: `ted`, one file for each leaf, and `compact`, each step once."""
