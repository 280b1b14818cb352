"""What is due: steps of ``rlds.toml``, interrupted runs, killed conversions; planned, then done."""
