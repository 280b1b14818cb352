"""The distinct values of a dataset's text, numbered in the order of first appearance.

text.utf8      g o   l e f t s t o p         the values, one after the other
text.offsets   0             7       11      where each begins; value k is offsets[k:k+2]
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from datasets_cli.errors import SourceError
from datasets_cli.formats.limits import beyond, limit
from datasets_cli.store.schema.texts import (
    OFFSETS_FILENAME,
    VALUES_FILENAME,
    encode_text,
    is_escaped,
)

KEPT_LENGTH = 200
"""Longer values are known by a digest, so that memory grows by their number and not their size."""

MAX_VALUES = 2**31 - 1


class VocabularyWriter:
    """Numbers values and writes each of them once; memory grows with the number of values."""

    def __init__(self, folder: Path) -> None:
        self.num_not_utf8 = 0
        self._codes: dict[str | bytes, int] = {}
        self._end = 0
        self._most_values = min(limit("distinct_texts"), MAX_VALUES)  # as codes are int32
        self._files = ExitStack()
        self._values = self._files.enter_context((folder / VALUES_FILENAME).open("xb"))
        self._offsets = self._files.enter_context((folder / OFFSETS_FILENAME).open("xb"))
        self._offsets.write(_int64(0))

    def codes(self, values: Iterable[str]) -> np.ndarray:
        """Return the numbers of some values, int32 ``[n]``; new ones are written."""
        known = self._codes
        found = (
            code if (code := known.get(_name(value))) is not None else self._add(value)
            for value in values
        )
        return np.fromiter(found, np.int32)

    def close(self) -> None:
        """Write what is left and close the files."""
        self._files.close()

    def _add(self, value: str) -> int:
        data = encode_text(value)
        self.num_not_utf8 += is_escaped(value)
        code = len(self._codes)
        if code >= self._most_values:
            raise SourceError(beyond("distinct_texts", math.inf, "A dataset"))
        self._end += len(data)
        self._values.write(data)
        self._offsets.write(_int64(self._end))
        self._codes[_name(value)] = code
        return code


def read_values(folder: Path) -> Iterable[bytes]:
    """Yield the values that a ``VocabularyWriter`` wrote, in order."""
    offsets = np.fromfile(folder / OFFSETS_FILENAME, "<i8")
    with (folder / VALUES_FILENAME).open("rb") as file:
        for start, stop in itertools.pairwise(offsets.tolist()):
            yield file.read(stop - start)


def _name(value: str) -> str | bytes:
    """Return what a value is known by."""
    if len(value) <= KEPT_LENGTH:
        return value
    return hashlib.sha256(value.encode(errors="surrogatepass")).digest()


def _int64(number: int) -> bytes:
    return number.to_bytes(8, "little", signed=True)
