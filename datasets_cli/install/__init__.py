"""Making datasets exist: fetched, written, committed, checked, removed."""
