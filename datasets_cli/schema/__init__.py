"""The TED schema: columns, rows and the successor rule, trajectories."""
