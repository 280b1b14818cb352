"""A gzip file as a stream of its unpacked bytes."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any

from datasets_cli.errors import SourceError

GZIP_MAGIC = b"\x1f\x8b"


class GzipStream:
    """The unpacked bytes of a gzip file, in order; a context manager.

    isal unpacks where it is installed (the extra ``fast``), two to five times as fast as Python's
    own zlib.

    Args:
        path: the file.

    Raises:
        SourceError: it does not begin as a gzip file does.
    """

    def __init__(self, path: Path) -> None:
        self.position = 0
        self._path = path
        self._errors: tuple[type[Exception], ...] = (EOFError, gzip.BadGzipFile, zlib.error)
        with path.open("rb") as file:
            head = file.read(16)
        if not head.startswith(GZIP_MAGIC):
            raise SourceError(f"{path.name} is not a gzip file: it begins with {head!r}.")
        try:
            from isal import igzip, igzip_lib
        except ImportError:
            self._file = gzip.GzipFile(path)
        else:
            isal_error: Any = igzip_lib.IsalError  # which its stub takes for an instance
            self._errors += (isal_error,)
            self._file = igzip.IGzipFile(path)

    def __enter__(self) -> GzipStream:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, num_bytes: int = -1, /) -> bytes:
        """Return the next bytes, all of them if less than 0; fewer only at the end.

        Raises:
            SourceError: the file is cut off or damaged, here or, at its end, anywhere before.
        """
        try:
            data = self._file.read(num_bytes)
        except self._errors as error:
            raise SourceError(
                f"{self._path.name} is cut off or damaged: unpacking stops after {self.position} "
                f"bytes ({error or type(error).__name__}). Download it again."
            ) from error
        self.position += len(data)
        return data


def fastest_zlib() -> Any:
    """Return isal's zlib where it is installed (the extra ``fast``), or Python's own."""
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib
    return isal_zlib
