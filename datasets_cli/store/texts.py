"""Columns of text: how they are written, and how rows of them are read.

The vocabulary is the distinct values, numbered in the order of first appearance:

text.utf8      g o   l e f t s t o p         the concatenated values
text.offsets   0             7       11      the start of each; value k is offsets[k:k+2]
"""

from __future__ import annotations

import hashlib
import itertools
import shutil
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from datasets_cli.core.system_errors import damaged
from datasets_cli.errors import DamagedDataset
from datasets_cli.formats.limits import beyond, limit
from datasets_cli.schema.columns import Key
from datasets_cli.schema.mapped_bytes import map_array
from datasets_cli.schema.texts import (
    OFFSETS_FILENAME,
    SPLIT,
    VALUES_FILENAME,
    TextColumn,
    decode_text,
    encode_text,
    is_escaped,
    text_column,
    text_files,
)
from datasets_cli.schema.trajectories import lengths_of
from datasets_cli.schema.trajectory_file import FILENAME as TRAJECTORIES
from datasets_cli.sources.disk import disk_errors
from datasets_cli.sources.regular_file import open_regular

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


WHOLE_LENGTH = 200
"""Longer values are identified by a digest, which limits the memory of the vocabulary."""

MAX_VALUES = 2**31 - 1

MOST_SPLITS = 64

DISTINCT_TEXT_BYTES = 64
"""The memory of a distinct text, counted towards the limit ``text_bytes``."""


class TextWriter:
    """Writes columns of text into a folder."""

    # Values are numbered row by row, and within a row in the order of the keys: the files do not
    # depend on the sizes of the blocks.

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.columns: tuple[TextColumn, ...] = ()
        self._files = ExitStack()
        self._codes: list[BinaryIO | None] = []
        self._vocabulary: VocabularyWriter | None = None

    @property
    def num_not_utf8(self) -> int:
        """The number of distinct values so far whose bytes are not UTF-8."""
        return self._vocabulary.num_not_utf8 if self._vocabulary else 0

    def write(self, rows: Mapping[Key, np.ndarray]) -> None:
        """Append rows."""
        # rows: object arrays of str `[n, *shape]`, the same columns in every call.
        with disk_errors(self.folder):
            if self._vocabulary is None:
                self._open(text_column(key, values) for key, values in sorted(rows.items()))
            assert self._vocabulary is not None, "it is open"
            # A row of this table has all values of a row, of all columns.
            num_rows = len(next(iter(rows.values())))
            parts = [rows[column.key].reshape(num_rows, -1) for column in self.columns]
            table = np.concatenate(parts, axis=1)
            codes = self._vocabulary.codes(table)
            after = np.cumsum([part.shape[1] for part in parts])
            for file, own in zip(self._codes, np.split(codes, after[:-1], axis=1), strict=True):
                if file is not None:
                    file.write(np.ascontiguousarray(own, "<i4").data)

    def finish(self) -> list[str]:
        """Close the files and return their paths relative to the folder."""
        with disk_errors(self.folder):
            self.close()
        return text_files(self.columns)

    def close(self) -> None:
        """Close every file; the folder is incomplete unless ``finish`` returned."""
        self._files.close()

    def copy(self, source: Path, columns: tuple[TextColumn, ...]) -> None:
        """Copy all text of another dataset with the same rows, instead of writing text."""
        self.columns = columns
        with disk_errors(self.folder):
            for name in text_files(columns):
                path = self.folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with open_regular(source / name) as file, path.open("xb") as copy:
                    shutil.copyfileobj(file, copy)

    def join(self, parts: Iterable[Path], columns: tuple[TextColumn, ...]) -> None:
        """Write the text of consecutive rows that other writers have written into folders."""
        # In the order of first appearance again: the files do not depend on the parts.
        with disk_errors(self.folder):
            self._open(columns)
            for part in parts:
                assert self._vocabulary is not None, "it is open"
                # The new code of each value of the part.
                values = np.array([*map(decode_text, read_values(part))], object)
                numbers = self._vocabulary.codes(values[:, None])[:, 0]
                for column, file in zip(self.columns, self._codes, strict=True):
                    if file is not None:
                        codes = np.fromfile(part / column.filename, "<i4")
                        file.write(numbers[codes].astype("<i4").data)

    def _open(self, columns: Iterable[TextColumn]) -> None:
        self.columns = tuple(columns)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._vocabulary = VocabularyWriter(self.folder)
        self._files.callback(self._vocabulary.close)
        for column in self.columns:
            path = self.folder / column.filename
            if not column.codes.row_bytes:
                self._codes.append(None)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            self._codes.append(self._files.enter_context(path.open("xb")))


class VocabularyWriter:
    """Numbers values and writes each once; memory grows with the number of distinct values."""

    def __init__(self, folder: Path) -> None:
        self.num_not_utf8 = 0
        self._codes: dict[str | bytes, int] = {}
        self._end = 0
        # Codes are int32.
        self._most_values = min(limit("text_bytes") // DISTINCT_TEXT_BYTES, MAX_VALUES)
        self._files = ExitStack()
        self._values = self._files.enter_context((folder / VALUES_FILENAME).open("xb"))
        self._offsets = self._files.enter_context((folder / OFFSETS_FILENAME).open("xb"))
        self._offsets.write(_int64(0))

    def codes(self, table: np.ndarray) -> np.ndarray:
        """Return the codes int32 of values ``[n, m]`` of str; new values are written by rows."""
        known = self._codes
        # A split or an instruction is the same in many rows, and only the first one is looked up.
        is_first = np.ones(table.shape, np.bool_)
        is_first[1:] = table[1:] != table[:-1]
        found = (
            code if (code := known.get(_name(value))) is not None else self._add(value)
            for value in table[is_first]
        )
        codes = np.zeros(table.shape, np.int32)
        codes[is_first] = np.fromiter(found, np.int32)
        rows = np.where(is_first, np.arange(len(table))[:, None], 0)
        return np.take_along_axis(codes, np.maximum.accumulate(rows, axis=0), axis=0)

    def close(self) -> None:
        """Write the buffered values and close the files."""
        self._files.close()

    def _add(self, value: str) -> int:
        data = encode_text(value)
        self.num_not_utf8 += is_escaped(value)
        code = len(self._codes)
        if code >= self._most_values:
            raise beyond("text_bytes", DISTINCT_TEXT_BYTES * (code + 1), "The vocabulary")
        self._end += len(data)
        self._values.write(data)
        self._offsets.write(_int64(self._end))
        self._codes[_name(value)] = code
        return code


def count_splits(
    folder: Path,
    columns: tuple[TextColumn, ...],
    sizes: Mapping[str, Mapping[str, Any]],
) -> dict[str, dict[str, int]]:
    """Return the trajectories and transitions of each split, of the files of a new dataset."""
    if (split := TextColumn(SPLIT, ())) not in columns:
        return {}
    offsets = np.load(folder / TRAJECTORIES, allow_pickle=False)
    rows = TextRows(folder, (split,), sizes, int(offsets[-1]))
    counts: dict[str, dict[str, int]] = {}
    names = rows.gather(offsets[:-1])[SPLIT]
    for name, length in zip(names, lengths_of(offsets).tolist(), strict=True):
        count = counts.setdefault(name, dict.fromkeys(("trajectories", "transitions"), 0))
        count["trajectories"] += 1
        count["transitions"] += length
    # Of more values, the column is not a split: it may number the trajectories.
    return counts if len(counts) <= MOST_SPLITS else {}


def read_values(folder: Path) -> Iterable[bytes]:
    """Yield the values that a ``VocabularyWriter`` wrote, in order."""
    offsets = np.fromfile(folder / OFFSETS_FILENAME, "<i8")
    with (folder / VALUES_FILENAME).open("rb") as file:
        for start, stop in itertools.pairwise(offsets.tolist()):
            yield file.read(stop - start)


def _name(value: str) -> str | bytes:
    if len(value) <= WHOLE_LENGTH:
        return value
    return hashlib.sha256(value.encode(errors="surrogatepass")).digest()


def _int64(number: int) -> bytes:
    return number.to_bytes(8, "little", signed=True)
