"""The main job end to end on data that ships with the package."""
