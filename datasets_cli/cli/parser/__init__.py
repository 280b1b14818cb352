"""The parser of the command line: typer's, with commands built when asked for, help, completion."""
