"""The verbs: one file each, with the arguments, the result and the function."""
