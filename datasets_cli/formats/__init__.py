"""File formats of publishers, with no reinforcement learning in them."""
