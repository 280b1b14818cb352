"""Opens a committed dataset as numpy arrays, without torch; returned arrays are copies."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from datasets_cli.core.checked_json import copy_of
from datasets_cli.schema.columns import Key, numpy_dtype
from datasets_cli.schema.mapped_bytes import TrajectoryTable, forget_pages, map_array
from datasets_cli.schema.shapes import check_numbers, check_run
from datasets_cli.schema.trajectory_file import FILENAME as TRAJECTORIES
from datasets_cli.schema.tree import leaves_in
from datasets_cli.store.check import check_sizes
from datasets_cli.store.commit import read_one_copy
from datasets_cli.store.layouts.records import RECORDS, ROW_MAP, Record, row_map_dtype
from datasets_cli.store.manifest import Manifest, read_manifest
from datasets_cli.store.texts import TextRows

if TYPE_CHECKING:
    from datasets_cli.store.layouts.frames import FrameReader
    from datasets_cli.store.layouts.records import FrameField
    from datasets_cli.store.selection import Selection

Columns = dict[Key, np.ndarray]
"""Rows ``[n, *shape]`` by key; see ``element_types`` for dtypes that numpy lacks."""


def plain_numbers(rows: np.ndarray) -> np.ndarray | None:
    """Return rows in a dtype that numpy computes with; None for two numbers packed in a byte."""
    if rows.dtype.names is None:
        return rows
    (name,) = rows.dtype.names
    if name == "bfloat16":  # the upper half of a float32
        wide: np.ndarray = np.left_shift(rows[name], 16, dtype=np.uint32)
        return wide.view(np.float32)
    from datasets_cli.schema.bits import widened  # imports torch, which has the rarer dtypes

    return widened(rows)


class ArrayRows(Protocol):
    """The rows of some columns, as numpy arrays."""

    def run(self, start: int, stop: int) -> Columns:
        """Return copies of the rows ``start`` to ``stop - 1``."""

    def gather(self, numbers: np.ndarray) -> Columns:
        """Return copies of the rows int64 ``[B]``."""


class ArraySource:
    """A dataset or a view whose rows are read as numpy arrays; read-only."""

    selection: Selection | None = None

    def __init__(self, folder: Path, manifest: Manifest, record: Record) -> None:
        self.folder, self._manifest, self.record = folder, manifest, record
        self.id, self.content = manifest.id, manifest.content
        self._trajectories = TrajectoryTable(
            f"{folder}/{TRAJECTORIES}", manifest.num_transitions, manifest.num_trajectories
        )

    def __len__(self) -> int:
        return self._manifest.num_transitions

    @property
    def manifest(self) -> Manifest:
        """A copy of everything known about the dataset."""
        return copy_of(self._manifest)

    @property
    def num_trajectories(self) -> int:
        """The number of trajectories."""
        whole = self._manifest.num_trajectories
        return whole if self.selection is None else len(self.selection)

    @property
    def starts(self) -> np.ndarray:
        """A copy of the offsets int64 ``[K + 1]``; trajectory k is rows ``starts[k:k+2]``."""
        return self._starts.copy()

    @cached_property
    def _starts(self) -> np.ndarray:
        return self._trajectories.read()

    @property
    def row_bytes(self) -> int:
        """Bytes of the numeric columns of one row."""
        return sum(column.row_bytes for column in self._manifest.columns)

    def arrays_of(self, keys: frozenset[Key]) -> ArrayRows:
        """Return the rows of only these columns; text has the dtype object."""
        raise NotImplementedError


class DatasetArrays(ArraySource):
    """The rows of one committed dataset, read without torch."""

    def __init__(self, folder: Path, manifest: Manifest, record: Record) -> None:
        super().__init__(folder, manifest, record)
        num_rows, files = manifest.num_transitions, manifest.files
        self.texts = TextRows(folder, manifest.texts, files, num_rows) if manifest.texts else None
        self._arrays = {
            name: map_array(folder / name, dtype, shape)
            for name, dtype, shape in self._mapped_files(record)
        }
        self._readers: dict[FrameField, FrameReader] = {}
        for field in record.frames:
            from datasets_cli.store.layouts.frames import FrameReader  # with the compressor

            self._readers[field] = FrameReader.of(field, folder, files, record.num_records)

    def arrays_of(self, keys: frozenset[Key]) -> ArrayRows:
        """Return the rows of only these columns; text has the dtype object."""
        if self.texts and (texts := keys.intersection(self.texts.keys)):
            return _RowsWithText(self.arrays_of(keys - texts), self.texts, texts)
        if self._manifest.layout == "compact":
            from datasets_cli.store.layouts.record_arrays import RecordArrays, RowMap

            array_of = self._arrays.__getitem__
            row_map = RowMap(self.folder, self.record, partial(array_of, ROW_MAP))
            records, reader_of = partial(array_of, RECORDS), self._readers.__getitem__
            record = self.record.only(keys)
            return TreeRows(RecordArrays(record, keys, row_map, records, reader_of))
        columns = (column for column in self._manifest.columns if column.key in keys)
        arrays = {column.key: self._arrays[column.filename] for column in columns}
        return _LeafRows(arrays, len(self))

    def forget_pages(self) -> None:
        """Release the mapped pages from this process's memory; they can be read again."""
        for array in self._arrays.values():
            forget_pages(array)

    def read_ends(self) -> None:
        """Read the offsets of trajectories, and the first and the last row, to detect damage."""
        # For offsets that were wrong when they were written: the digests match them.
        assert len(self._starts), "reading checks them"
        rows = np.array([0, len(self) - 1])
        self.arrays_of(frozenset(column.key for column in self._manifest.all_columns)).gather(rows)

    def _mapped_files(self, record: Record) -> list[tuple[str, np.dtype, tuple[int, ...]]]:
        """Return the name, dtype and shape of each file of numbers; frames are not mapped here."""
        num_rows, num_records = len(self), record.num_records
        if self._manifest.layout == "compact":
            row_map = ROW_MAP, np.dtype(row_map_dtype(num_records)), (num_rows,)
            return [(RECORDS, np.dtype(np.uint8), (num_records, record.size)), row_map]
        return [
            (column.filename, numpy_dtype(column.dtype), (num_rows, *column.shape))
            for column in self._manifest.columns
        ]


def open_arrays(folder: Path) -> DatasetArrays:
    """Open the dataset in ``folder``; see ``DatasetArrays``."""

    def read() -> DatasetArrays:
        manifest = read_manifest(folder)
        return DatasetArrays(folder, manifest, check_sizes(folder, manifest))

    return read_one_copy(folder, read)


class TreeRows:
    """Columns from a reader of nested dicts: of the ``compact`` layout, or with torch."""

    def __init__(
        self, rows: Any, array_of: Callable = np.asarray, index_of: Callable = np.asarray
    ) -> None:
        self._rows, self._array_of, self._index_of = rows, array_of, index_of

    def run(self, start: int, stop: int) -> Columns:
        leaves = leaves_in(self._rows.run(start, stop))
        return {key: self._array_of(leaf) for key, leaf in leaves}

    def gather(self, numbers: np.ndarray) -> Columns:
        leaves = leaves_in(self._rows.gather(self._index_of(numbers)))
        return {key: self._array_of(leaf) for key, leaf in leaves}


class _RowsWithText:
    def __init__(self, rows: ArrayRows, texts: TextRows, keys: frozenset[Key]) -> None:
        self._rows, self._texts, self._keys = rows, texts, keys

    def run(self, start: int, stop: int) -> Columns:
        return self._rows.run(start, stop) | self._texts_of(np.arange(start, stop))

    def gather(self, numbers: np.ndarray) -> Columns:
        return self._rows.gather(numbers) | self._texts_of(numbers)

    def _texts_of(self, numbers: np.ndarray) -> Columns:
        texts, shape = self._texts.gather(numbers), self._texts.shape
        arrays = {key: np.array(texts[key], object) for key in self._keys}
        return {key: each.reshape(len(numbers), *shape(key)) for key, each in arrays.items()}


class _LeafRows:
    def __init__(self, arrays: Columns, num_rows: int) -> None:
        self._arrays, self._num_rows = arrays, num_rows

    def run(self, start: int, stop: int) -> Columns:
        check_run(start, stop, self._num_rows)
        return {key: array[start:stop].copy() for key, array in self._arrays.items()}

    def gather(self, numbers: np.ndarray) -> Columns:
        check_numbers(numbers, self._num_rows)
        return {key: array.take(numbers, 0) for key, array in self._arrays.items()}
