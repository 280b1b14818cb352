"""The columns of a mixture's members: compared, and mapped as declared."""
