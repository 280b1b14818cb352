"""A project: its ``rlds.toml``, what is due of its steps, and the data that it declares."""
