"""Tests of what a user sets up."""
