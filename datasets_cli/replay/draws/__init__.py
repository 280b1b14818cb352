"""Draws: samplers, which draw the rows of a batch, and the orders of epochs."""
