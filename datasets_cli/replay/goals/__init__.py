"""Goals: rows whose desired goal becomes one that was reached, in hindsight."""
