"""The ``ted`` layout: one file a leaf."""
