"""What every room uses: options, JSON, progress, quantities, errors of the system."""
