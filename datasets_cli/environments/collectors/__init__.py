"""Collecting rows from environments: collectors, in this process or in several."""
