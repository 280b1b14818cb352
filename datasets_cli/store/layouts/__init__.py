"""The layouts on the disk: `ted`, one file a leaf, and `compact`, each step once."""
