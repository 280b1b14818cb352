"""The TED store: files, manifest, opening."""
