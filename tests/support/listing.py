"""What is below a folder."""

from __future__ import annotations

from pathlib import Path


def listing(folder: Path) -> list[str]:
    """Return the paths of everything below a folder, relative to it, sorted."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))
