"""The parser of the command line: typer with lazily built commands, help and completion."""
