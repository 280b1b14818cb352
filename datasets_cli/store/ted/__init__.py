"""The ``ted`` layout: one file per leaf."""
