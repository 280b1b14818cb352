"""Making datasets exist: sources checked, files fetched, rows written, committed."""
