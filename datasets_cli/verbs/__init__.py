"""The verbs: one file for the arguments, the result and the function of each."""
