"""Decompression of gzip files."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any

from datasets_cli.errors import SourceError

GZIP_MAGIC = b"\x1f\x8b"


class GzipStream:
    """The decompressed bytes of a gzip file, in order; a context manager.

    isal, of the optional dependency ``fast``, is two to five times as fast as Python's zlib.

    Args:
        path: the file.

    Raises:
        SourceError: it does not begin with ``GZIP_MAGIC``.
    """

    def __init__(self, path: Path) -> None:
        self.position = 0
        self._path = path
        self._errors: tuple[type[Exception], ...] = (EOFError, gzip.BadGzipFile, zlib.error)
        with path.open("rb") as file:
            head = file.read(16)
        if not head.startswith(GZIP_MAGIC):
            raise SourceError(
                f"{path.name} is not a gzip file: it begins with {head!r}.", path=path, found=head
            )
        try:
            from isal import igzip, igzip_lib
        except ImportError:
            self._file = gzip.GzipFile(path)
        else:
            isal_error: Any = igzip_lib.IsalError  # typed as an instance in its stub
            self._errors += (isal_error,)
            self._file = igzip.IGzipFile(path)

    def __enter__(self) -> GzipStream:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, num_bytes: int = -1, /) -> bytes:
        """Return the next bytes, fewer only at the end; all of them if ``num_bytes`` is negative.

        Raises:
            SourceError: the file is cut off or damaged. Some damage is found only at its end.
        """
        try:
            data = self._file.read(num_bytes)
        except self._errors as error:
            raise SourceError(
                f"{self._path.name} is cut off or damaged: decompression stops after "
                f"{self.position} bytes ({error or type(error).__name__}).",
                path=self._path,
                found=self.position,
                advice="Download it again.",
            ) from error
        self.position += len(data)
        return data


def fastest_zlib() -> Any:
    """Return isal's zlib if the optional dependency ``fast`` is installed, else Python's."""
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib
    return isal_zlib
