"""Making datasets exist: fetched, converted, committed, checked, removed."""
