"""Maps a function over a dataset into a new one; the identity of functions."""
