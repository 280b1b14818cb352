"""Running hashes of a stream of bytes, by several algorithms at once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

CHUNK_BYTES = 1 << 20
HEAD_BYTES = 512


class Digests:
    """Several running hashes of one stream of bytes."""

    def __init__(self, algorithms: Iterable[str]) -> None:
        self._hashes = {name: hashlib.new(name) for name in sorted(algorithms)}
        self.size = 0
        self.head = b""

    def update(self, data: bytes) -> None:
        """Add the next bytes."""
        if self.size < HEAD_BYTES:
            self.head += data[: HEAD_BYTES - self.size]
        self.size += len(data)
        for running in self._hashes.values():
            running.update(data)

    def hex(self) -> dict[str, str]:
        """Return the hexadecimal digests of the bytes so far."""
        return {name: running.hexdigest() for name, running in self._hashes.items()}

    def read(self, path: Path) -> bytes:
        """Add a whole file and return its first bytes."""
        with path.open("rb") as file:
            self.read_file(file)
        return self.head

    def read_file(self, file: BinaryIO) -> None:
        """Add the rest of an open file."""
        while data := file.read(CHUNK_BYTES):
            self.update(data)
