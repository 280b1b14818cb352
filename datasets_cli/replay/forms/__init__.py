"""The form of rows: how they become columns, and batches are put together from these."""
