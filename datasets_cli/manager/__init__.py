"""The verbs: each is one file, the function that users call and what it returns."""
