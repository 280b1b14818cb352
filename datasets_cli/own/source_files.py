"""The files of an import as the manifest records them: their bytes and their sha256."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Any

from datasets_cli.errors import SourceError
from datasets_cli.sources.disk import COPIED_BYTES


class SourceFiles:
    """A file or a folder, hashed by a thread while its rows are read.

    The sha256 of a folder is that of the list which ``sha256sum`` prints of its files, by path.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._before = path, _stats(path)
        self._is_left = Event()

    def __enter__(self) -> SourceFiles:
        self._thread = ThreadPoolExecutor(1)
        self._digest = self._thread.submit(self._hash)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_left.set()
        self._thread.shutdown()

    def resource(self) -> dict[str, Any]:
        """Return the name, the bytes and the sha256 of files that have not changed meanwhile."""
        sha256 = self._digest.result()
        if _stats(self._path) != self._before:
            raise SourceError(f"{self._path} changed while it was read. Import it again.")
        size = sum(size for size, *_ in self._before.values())
        name = self._path.name or self._path.resolve().name  # of "."
        return {"filename": name, "bytes": size, "sha256": sha256}

    def _hash(self) -> str:
        if self._path.is_file():
            return self._sha256_of(self._path)
        lines = (f"{self._sha256_of(self._path / name)}  {name}\n" for name in self._before)
        return hashlib.sha256("".join(lines).encode(errors="surrogateescape")).hexdigest()

    def _sha256_of(self, path: Path) -> str:
        sha256 = hashlib.sha256()
        with path.open("rb") as file:
            while (chunk := file.read(COPIED_BYTES)) and not self._is_left.is_set():
                sha256.update(chunk)
        return sha256.hexdigest()


def _stats(path: Path) -> dict[str, tuple[int, int, int]]:
    """Return size, time of change and inode of a file, or of a folder's files by ``./path``."""
    if path.is_file():
        return {path.name: _stat(path)}
    found = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
    files = {f"./{each.relative_to(path).as_posix()}": each for each in found if each.is_file()}
    return {name: _stat(files[name]) for name in sorted(files, key=os.fsencode)}


def _stat(path: Path) -> tuple[int, int, int]:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns, stat.st_ino
