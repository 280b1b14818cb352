"""Looking into datasets: what their columns hold, worked out once and kept beside them."""
