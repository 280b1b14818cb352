"""Specs in other forms: gymnasium's spaces, JSON, and the specs of a dataset."""
