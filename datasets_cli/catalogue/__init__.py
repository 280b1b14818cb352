"""The catalogue of datasets: families, their entries, and the resolution of names to ids."""
