"""Writers: they place rows in a storage."""
