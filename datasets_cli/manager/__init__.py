"""The verbs that make and keep datasets: each is one file, the function and what it returns."""
