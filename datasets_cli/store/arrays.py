"""Opens a committed dataset as numpy arrays, without torch; returned arrays are copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from datasets_cli.core.checked_json import copy_of
from datasets_cli.core.system_errors import damaged
from datasets_cli.errors import DamagedDataset, UnknownKey
from datasets_cli.schema.columns import (
    EPISODE,
    FINAL_FOLDER,
    RECORDED_STEP,
    TRUNCATED,
    Key,
    final_columns,
    numpy_dtype,
    rows_per_block,
    show_key,
)
from datasets_cli.schema.mapped_bytes import TrajectoryTable, forget_pages, map_array
from datasets_cli.schema.shapes import check_numbers, check_run
from datasets_cli.schema.texts import OFFSETS_FILENAME, VALUES_FILENAME, RecordedColumn
from datasets_cli.schema.trajectory_file import FILENAME as TRAJECTORIES
from datasets_cli.schema.transitions import NO_EPISODE, steps_of
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

Result = TypeVar("Result")
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


def read_same_copy(
    folder: Path, manifest: Manifest, what: str, read: Callable[[], Result]
) -> Result:
    """Read files of an open dataset, which may have been replaced since it was opened."""

    def read_if_same() -> Result:
        found = read_manifest(folder)
        if found.content != manifest.content:
            raise DamagedDataset(
                f"{manifest.id} was replaced by other data since it was opened, so its {what} "
                "cannot be read.",
                id=manifest.id,
                path=folder,
                advice="Open it again.",
            )
        check_sizes(folder, found)
        return read()

    return read_one_copy(folder, read_if_same)


class FinalSteps:
    """The final steps of a committed dataset, mapped read-only when they are first asked for.

    step      0  1  2T 3  4  5|  6|     T terminated, | cut off: 5 and 6 are final steps
    row       0  1  2  3  4  -   -
    episode   0  0  0  1  1  1  -1      6 is its own trajectory, without a row
    """

    def __init__(self, folder: Path, manifest: Manifest, trajectories: TrajectoryTable) -> None:
        self._folder, self._manifest = folder / FINAL_FOLDER, manifest
        self._num_steps = manifest.final_steps
        self._trajectories = trajectories

    @cached_property
    def _arrays(self) -> Columns:
        num_steps = self._num_steps
        return self._read(
            lambda: {
                column.key: map_array(
                    self._folder / column.filename if num_steps else "",
                    numpy_dtype(column.dtype),
                    (num_steps, *column.shape),
                )
                for column in final_columns(self._manifest.columns)
            }
        )

    @cached_property
    def _text_rows(self) -> TextRows:
        vocabulary = (VALUES_FILENAME, OFFSETS_FILENAME)
        sizes = {name: self._manifest.files[f"{FINAL_FOLDER}/{name}"] for name in vocabulary}
        return self._read(
            lambda: TextRows(self._folder, self._manifest.final_texts, sizes, self._num_steps)
        )

    def _read(self, read: Callable[[], Result]) -> Result:
        folder, manifest = self._folder.parent, self._manifest
        return read_same_copy(folder, manifest, "final steps", read) if self._num_steps else read()

    def __len__(self) -> int:
        return self._num_steps

    @property
    def keys(self) -> tuple[Key, ...]:
        """The keys of the columns, of numbers and of text."""
        columns = final_columns(self._manifest.columns)
        return (*(each.key for each in columns), *(text.key for text in self._manifest.final_texts))

    @property
    def steps(self) -> np.ndarray:
        """The number of each final step among all recorded steps, int64 ``[F]``, ascending."""
        return self._checked[1]

    @property
    def episodes(self) -> np.ndarray:
        """The trajectory of each final step, int64 ``[F]``; -1 for a trajectory without a row."""
        return self._checked[0]

    def __getitem__(self, key: Key) -> np.ndarray:
        """Return a column ``[F, *shape]``, read-only; text as objects."""
        for text in self._manifest.final_texts:
            if text.key == key:
                values = self._text_rows.column(key) if len(self) else []
                return np.array(values, object).reshape(len(self), *text.shape)
        if key not in self._arrays:
            raise UnknownKey(
                f"The final steps of {self._manifest.id} have no {show_key(key)}.",
                id=self._manifest.id,
                key=key,
                expected=", ".join(map(show_key, self.keys)),
            )
        return self._arrays[key]

    @cached_property
    def _checked(self) -> tuple[np.ndarray, np.ndarray]:
        """Episodes and steps, after a check that each step follows the last row of its episode."""
        episodes, steps = self[EPISODE], self[RECORDED_STEP]
        offsets = self._trajectories.read()
        num_before = steps - np.arange(len(steps))  # the rows before each final step
        ends = offsets[1:].take(episodes, mode="clip") if len(steps) else num_before
        is_alone = episodes == NO_EPISODE
        # Compared, not subtracted: the difference of damaged numbers may overflow.
        right = np.where(is_alone, np.isin(num_before, offsets), num_before == ends)
        right[1:] &= steps[1:] > steps[:-1]
        own = np.flatnonzero(~is_alone)
        right[own] &= (episodes[own] >= 0) & (episodes[own] < len(offsets) - 1)
        right[own[1:]] &= episodes[own[1:]] > episodes[own[:-1]]
        alone, expected = int(is_alone.sum()), self._manifest.final_steps_alone
        problem = ""
        about: dict[str, Any] = {"expected": expected, "found": alone}
        if not right.all():
            place = int(right.argmin())
            problem = (
                f"final step {place} is step {steps[place]} of trajectory {episodes[place]}; "
                "expected the step after the last row of a trajectory"
            )
            about = {"row": place, "found": [int(steps[place]), int(episodes[place])]}
        elif alone != expected:
            problem = f"{alone} final steps are a trajectory of their own; expected {expected}"
        if problem:
            raise damaged(self._folder, f"{self._folder}: {problem}", **about)
        return episodes, steps


class ArraySource:
    """A dataset or a view whose rows are read as numpy arrays; read-only."""

    selection: Selection | None = None

    def __init__(self, folder: Path, manifest: Manifest, record: Record) -> None:
        self.folder, self._manifest, self.record = folder, manifest, record
        self.id, self.content = manifest.id, manifest.content
        self._trajectories = TrajectoryTable(
            f"{folder}/{TRAJECTORIES}", manifest.num_transitions, manifest.num_trajectories
        )

        self.final = FinalSteps(folder, manifest, self._trajectories)
        """The final steps of the whole dataset; of a view, too."""

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

    def final_places(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the trajectories with a final step, and its place in ``final``, int64 ``[n]``.

        A trajectory of a view has the final step after its last row; without that row, it has none.
        """
        places = np.full(self._manifest.num_trajectories if len(self.final) else 0, -1)
        if not len(places):
            return places, places
        own = np.flatnonzero(self.final.episodes != NO_EPISODE)
        places[self.final.episodes[own]] = own
        if (selection := self.selection) is not None:
            is_early = selection.ends_early(self._trajectories.read())
            places = np.where(is_early, -1, places[selection.numbers])
        numbers = np.flatnonzero(places >= 0)
        return numbers, places[numbers]

    def first_texts(self, key: Key) -> np.ndarray:
        """Return a text of the first row of each trajectory, str ``[K]``; not kept in memory."""
        manifest, rows = self._manifest, self._trajectories.read()[:-1]
        if (selection := self.selection) is not None:
            rows = rows[selection.numbers] + selection.firsts
        columns = tuple(text for text in manifest.texts if text.key == key)
        size = manifest.num_transitions
        texts = read_same_copy(
            self.folder,
            manifest,
            "text",
            lambda: TextRows(self.folder, columns, manifest.files, size).gather(rows),
        )
        return np.array(texts[key], object)

    @property
    def num_final(self) -> int:
        """The number of final steps; of a view, only those of its trajectories."""
        return len(self.final if self.selection is None else self.final_places()[0])

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
        return DatasetArrays(folder, manifest, check_sizes(folder, manifest, final=False))

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


class RecordedSteps:
    """The recorded steps of a dataset, or of some of its trajectories, in bounded memory.

    step        0  1  2T 3  4  5|  6|     T terminated, | cut off: 5 and 6 are final steps
    truncated   .  .  .  .  .  T   T      in the dataset, row 4 has the flag of step 5
    """

    # trajectories: numbers in the order of the steps; None for all steps, also for those that are a
    # trajectory alone.

    def __init__(
        self,
        dataset: DatasetArrays,
        columns: Sequence[RecordedColumn],
        trajectories: np.ndarray | None = None,
    ) -> None:
        self.columns = columns
        self._dataset, self._manifest, final = dataset, dataset.manifest, dataset.final
        # In a derived dataset, another trajectory may follow the last step of the source.
        flagged = any(each.key == TRUNCATED for each in self._manifest.recorded)
        self._has_flags = flagged and self._manifest.parent is None
        self._final, has_row = final.steps, final.episodes != NO_EPISODE
        self._after_rows = self._final[has_row]
        firsts, counts = np.zeros(1, np.int64), np.array([len(dataset) + len(final)])
        self._last = int(counts[0]) - 1
        if trajectories is not None:
            counts = np.diff(dataset.starts)
            counts[final.episodes[has_row]] += 1
            firsts = steps_of(dataset.starts[:-1], self._final)[trajectories]
            counts = counts[trajectories]
        # Steps of a view are numbered from 0: the ends of its trajectories, and what to add for
        # the numbers in the source.
        self._ends = np.cumsum(counts)
        self._shifts = firsts - (self._ends - counts)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def blocks(self) -> Iterator[dict[str, np.ndarray]]:
        """Yield one or more bounded blocks of all steps, by the names of the columns."""
        keys = {column.key for column in self.columns}
        reader = self._dataset.arrays_of(frozenset(keys))
        final = {key: self._dataset.final[key] for key in keys} if len(self._final) else {}
        size = rows_per_block(self._dataset.row_bytes)
        for first in range(0, max(1, len(self)), size):
            places = np.arange(first, min(first + size, len(self)))
            steps = places + self._shifts.take(self._ends.searchsorted(places, side="right"))
            before = self._final.searchsorted(steps)  # the final steps before each step
            is_final = _contains(self._final, steps)
            rows = reader.gather((steps - before)[~is_final])
            if TRUNCATED in keys:
                self._restore_flags(rows[TRUNCATED], steps[~is_final])
            for key in keys if is_final.any() else ():
                values = np.empty((len(steps), *rows[key].shape[1:]), rows[key].dtype)
                values[~is_final] = rows[key]
                values[is_final] = final[key][before[is_final]]
                if key == TRUNCATED and not self._has_flags:
                    values[is_final] = True  # the flags alone mark the ends of trajectories
                rows[key] = values
            yield {each.name: each.restored(rows[each.key]) for each in self.columns}

    def _restore_flags(self, truncated: np.ndarray, steps: np.ndarray) -> None:
        """Remove the flags of rows that the source does not have."""
        truncated[_contains(self._after_rows, steps + 1)] = False
        if self._has_flags and self._manifest.successors.get("unflagged_end"):
            truncated[steps == self._last] = False


def _contains(numbers: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return which of the wanted numbers are among ascending numbers, bool ``[n]``."""
    after: np.ndarray = numbers.searchsorted(wanted, side="right")
    return after > numbers.searchsorted(wanted)
