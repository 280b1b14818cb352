"""Trajectories as a list: where they begin, lengths, returns, ends, in any order."""
