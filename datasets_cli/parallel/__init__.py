"""Where parallel work runs."""
