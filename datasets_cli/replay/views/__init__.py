"""Views: some trajectories of a dataset, chosen by their table and named without a copy."""
