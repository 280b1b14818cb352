"""The TED store: schema, files, manifest, opening."""
