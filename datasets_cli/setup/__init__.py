"""What a user sets up: the program and what it runs on, its settings, recipes of one's own."""
