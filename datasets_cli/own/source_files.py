"""The files of an import as the manifest records them: their bytes and their sha256."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

from datasets_cli.errors import SourceError
from datasets_cli.sources.disk import COPIED_BYTES


@contextmanager
def hashed(path: Path) -> Iterator[Callable[[], dict[str, Any]]]:
    """Hash a file or a folder in a thread; yield what returns its name, bytes and sha256."""
    # The sha256 of a folder is that of the list which `sha256sum` prints of its files, by path.
    before, is_left = _stats(path), Event()
    with ThreadPoolExecutor(1) as thread:
        digest = thread.submit(_digest, path, before, is_left)

        def resource() -> dict[str, Any]:
            sha256 = digest.result()
            if _stats(path) != before:
                raise SourceError(f"{path} changed while it was read. Import it again.", path=path)
            size = sum(size for size, *_ in before.values())
            name = path.name or path.resolve().name  # of "."
            return {"filename": name, "bytes": size, "sha256": sha256}

        try:
            yield resource
        finally:
            is_left.set()


def _digest(path: Path, names: Iterable[str], is_left: Event) -> str:
    if path.is_file():
        return _sha256(path, is_left)
    lines = (f"{_sha256(path / name, is_left)}  {name}\n" for name in names)
    return hashlib.sha256("".join(lines).encode(errors="surrogateescape")).hexdigest()


def _sha256(path: Path, is_left: Event) -> str:
    sha256 = hashlib.sha256()
    with path.open("rb") as file:
        while (chunk := file.read(COPIED_BYTES)) and not is_left.is_set():
            sha256.update(chunk)
    return sha256.hexdigest()


def _stats(path: Path) -> dict[str, tuple[int, int, int]]:
    """Return size, time of change and inode of a file, or of a folder's files by ``./path``."""
    found = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
    files = {f"./{each.relative_to(path).as_posix()}": each for each in found if each.is_file()}
    files = {path.name: path} if path.is_file() else files
    stats = ((name, files[name].stat()) for name in sorted(files, key=os.fsencode))
    return {name: (stat.st_size, stat.st_mtime_ns, stat.st_ino) for name, stat in stats}
