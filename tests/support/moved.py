"""An installed dataset under another id."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from datasets_cli.store.manifest import read_manifest, write_manifest


def moved(folder: Path, name: str) -> Path:
    """Give an installed dataset another last name of its id, and return its folder."""
    manifest = read_manifest(folder)
    id = "/".join([*manifest.id.split("/")[:-1], name])
    write_manifest(folder, replace(manifest, id=id, content=""))
    return folder.rename(folder.with_name(name))
