"""Other tools' files, in and out: one file a format."""
