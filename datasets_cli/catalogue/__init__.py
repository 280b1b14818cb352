"""Recipes found, and what a user typed resolved into one dataset."""
