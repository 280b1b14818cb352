"""Reads text: the codes of rows, and the values that the codes number."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from datasets_cli.core.system_errors import damaged
from datasets_cli.errors import DamagedDataset
from datasets_cli.schema.columns import Key
from datasets_cli.schema.mapped_bytes import map_array
from datasets_cli.schema.texts import (
    OFFSETS_FILENAME,
    VALUES_FILENAME,
    TextColumn,
    decode_text,
)

CACHE_BYTES = 64 << 20
"""The approximate size of the cache of decoded values."""
ENTRY_BYTES = 100
"""The approximate memory of the Python objects of a cached value, besides its bytes."""

Values = list[Any]
"""Lists of str, nested like the shape of the rows."""


class TextRows:
    """The text of a committed dataset, mapped read-only and checked on reading."""

    def __init__(
        self,
        folder: Path,
        columns: tuple[TextColumn, ...],
        sizes: Mapping[str, Mapping[str, Any]],
        num_rows: int,
    ) -> None:
        self.folder = folder
        self.columns = columns
        self._codes = {  # text is never on a device
            column.key: map_array(folder / column.filename, "<i4", (num_rows, *column.shape))
            for column in columns
        }
        self._filenames = {column.key: column.filename for column in columns}
        size = int(sizes[VALUES_FILENAME]["bytes"])
        self._num_values = int(sizes[OFFSETS_FILENAME]["bytes"]) // 8 - 1
        self._offsets = map_array(folder / OFFSETS_FILENAME, "<i8", (self._num_values + 1,))
        self._bytes = map_array(folder / VALUES_FILENAME, "u1", (size,))
        first, last = int(self._offsets[0]), int(self._offsets[-1])
        if (first, last) != (0, size):
            raise damaged(
                folder,
                f"{folder / OFFSETS_FILENAME} begins at byte {first} and ends at byte {last} of "
                f"{VALUES_FILENAME}; expected 0 and {size}",
                expected=f"0 and {size}",
                found=f"{first} and {last}",
            )
        # The number of values of average size that fill the cache.
        most = CACHE_BYTES * self._num_values // (size + ENTRY_BYTES * self._num_values or 1)
        self._value = lru_cache(min(most, self._num_values))(self._decode)

    @property
    def keys(self) -> tuple[Key, ...]:
        """The keys of the columns."""
        return tuple(self._codes)

    @property
    def has_empty(self) -> bool:
        """Whether one of the values is the empty text."""
        return bool((np.diff(self._offsets) == 0).any())

    def shape(self, key: Key) -> tuple[int, ...]:
        """Return the shape of one row of a column."""
        return self._codes[key].shape[1:]

    def gather(self, index: np.ndarray) -> dict[Key, Values]:
        """Return the text of the rows ``index`` int64 ``[B]``, by column."""
        return {
            key: self._values_of(key, leaf.take(index, axis=0), index)
            for key, leaf in self._codes.items()
        }

    def column(self, key: Key) -> Values:
        """Return the text of all rows of one column."""
        codes = self._codes[key]
        return self._values_of(key, codes, np.arange(len(codes)))

    def _values_of(self, key: Key, codes: np.ndarray, index: np.ndarray) -> Values:
        """Return the values of the codes int32 ``[B, *shape]`` of rows, nested like the codes."""
        flat = codes.reshape(-1).tolist()
        try:
            values = [*map(self._value, flat)]
        except _BadCode as error:
            raise self._damaged(key, flat, index) from error
        if codes.ndim == 1:
            return values
        nested: Values = np.array(values, object).reshape(codes.shape).tolist()
        return nested

    def _decode(self, code: int) -> str:
        if not 0 <= code < self._num_values:
            raise _BadCode(f"expected a code from 0 to {self._num_values - 1}, found {code}")
        start, stop = self._offsets[code : code + 2].tolist()
        if not 0 <= start <= stop <= len(self._bytes):
            raise _BadCode(
                f"{OFFSETS_FILENAME} puts value {code} at the bytes {start} to {stop} of "
                f"{len(self._bytes)}"
            )
        return decode_text(self._bytes[start:stop].tobytes())

    def _damaged(self, key: Key, codes: list[int], index: np.ndarray) -> DamagedDataset:
        """Return the error of the first row with an invalid code."""
        for place, code in enumerate(codes):
            try:
                self._value(code)
            except _BadCode as error:
                # Each row has the same number of codes.
                row = int(index[place * len(index) // len(codes)])
                path = self.folder / self._filenames[key]
                return damaged(path, f"{path}, row {row}: {error}", key=key, row=row, found=code)
        raise AssertionError("one of the codes is invalid")


class _BadCode(Exception):
    """A code without a value."""
