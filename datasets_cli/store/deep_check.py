"""A deep check: every row of a dataset is read, every frame decoded, in bounded memory.

    next.done is next.terminated or next.truncated, and true only in the last row of a trajectory
    done, terminated and truncated at the root are false: an ended trajectory has no further step
    episode is the number of the trajectory
    next.observation is the observation of the following row, and zeros after a terminated step, if
    the successor rule computed it (see ``schema.transitions``)

The function of a derived dataset may return any values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from datasets_cli.core.progress import Progress, Rows
from datasets_cli.errors import DamagedDataset
from datasets_cli.schema.bits import bytes_of, to_array, to_tensor
from datasets_cli.schema.column_statistics import ColumnRange
from datasets_cli.schema.columns import (
    DONE,
    EPISODE,
    TERMINATED,
    TRUNCATED,
    Key,
    rows_per_block,
    show_key,
    successor_of,
)
from datasets_cli.schema.mapped_bytes import map_array
from datasets_cli.schema.steps import ROOT_FLAGS
from datasets_cli.schema.texts import OFFSETS_FILENAME, VALUES_FILENAME, TextColumn
from datasets_cli.schema.trajectories import ends_of, numbers_of
from datasets_cli.schema.transitions import SHIFTED
from datasets_cli.schema.tree import entry
from datasets_cli.store.arrays import plain_numbers
from datasets_cli.store.dataset import Dataset
from datasets_cli.store.deep_report import ColumnReport, DeepReport
from datasets_cli.store.layouts.frames import FrameReader
from datasets_cli.store.layouts.records import ROW_MAP, Record, row_map_dtype
from datasets_cli.store.manifest import Manifest

CHUNK_ROWS = 1 << 20


def offset_problems(dataset: Dataset) -> Iterator[str]:
    """Yield the faults of the offsets; the trajectory table was checked on opening."""
    manifest = dataset.manifest
    if manifest.texts:
        num_values = int(manifest.files[OFFSETS_FILENAME]["bytes"]) // 8 - 1
        size = int(manifest.files[VALUES_FILENAME]["bytes"])
        yield from _span_problems(dataset.folder, OFFSETS_FILENAME, "value", num_values, size)
        for text in manifest.texts:
            yield from _code_problems(dataset, text, num_values)
    if manifest.layout != "compact":
        return
    offsets, record = dataset.offsets.numpy(), dataset.record
    num_records = len(dataset) + len(offsets) - 1  # one more for each trajectory
    if record.num_records != num_records:
        yield (
            f"the dataset has {record.num_records} records; expected {num_records}, one for each "
            "row and one more for each trajectory"
        )
        return
    yield from _row_map_problems(dataset.folder, record, offsets)
    for field in record.frames:
        size = int(manifest.files[field.filename]["bytes"])
        yield from _span_problems(dataset.folder, field.offsets, "frame", num_records, size)


def final_problems(dataset: Dataset) -> Iterator[str]:
    """Yield the faults of the final steps."""
    # Their numbers are checked when they are read. A function may have changed other values.
    if not len(dataset.final) or dataset.manifest.parent is not None:
        return
    final, lasts = dataset.final, dataset.offsets.numpy()[1:] - 1
    own = np.flatnonzero(final.episodes >= 0)
    if final[TERMINATED].any():
        yield f"final step {int(final[TERMINATED].argmax())} is terminated"
    step = rows_per_block(dataset.row_bytes)
    for column in dataset.manifest.columns:
        if column.key[0] != "observation":
            continue
        rows = dataset.rows_of(frozenset({successor_of(column.key)}))
        for places in (own[start : start + step] for start in range(0, len(own), step)):
            leaf = entry(
                rows.gather(torch.from_numpy(lasts[final.episodes[places]])),
                successor_of(column.key),
            )
            recorded = bytes_of(to_tensor(final[column.key][places]))
            differs = (bytes_of(leaf) != recorded).any(dim=1).numpy()
            if differs.any():
                place = int(places[differs.argmax()])
                yield (
                    f"{show_key(column.key)} of final step {place} is not the successor of the "
                    "last row of its trajectory"
                )
                break


def _first_wrong(count: int, wrong: Callable[[int, int], np.ndarray]) -> Iterator[int]:
    """Yield the number of the first wrong entry of ``count`` entries, if there is one."""
    # wrong: returns which entries from start to stop - 1 are wrong, bool `[n]`.
    for start in range(0, count, CHUNK_ROWS):
        wrong_ones = np.flatnonzero(wrong(start, min(start + CHUNK_ROWS, count)))
        if len(wrong_ones):
            yield start + int(wrong_ones[0])
            return


def _row_map_problems(folder: Path, record: Record, offsets: np.ndarray) -> Iterator[str]:
    num_rows = int(offsets[-1])
    row_map = map_array(folder / ROW_MAP, row_map_dtype(record.num_records), (num_rows,))

    def wrong(start: int, stop: int) -> np.ndarray:
        # Row i follows the records of i rows, and one more of each earlier trajectory.
        expected = np.arange(start, stop) + numbers_of(offsets, start, stop)
        is_wrong: np.ndarray = row_map[start:stop] != expected
        return is_wrong

    for row in _first_wrong(num_rows, wrong):
        expected = row + int(numbers_of(offsets, row, row + 1)[0])
        yield f"{ROW_MAP}: row {row} is record {row_map[row]}; expected {expected}"


def _span_problems(folder: Path, name: str, what: str, count: int, size: int) -> Iterator[str]:
    """Yield the faults of the offsets of frames, or of values of text, in their file."""
    starts = map_array(folder / name, "<i8", (count + 1,))
    if starts[0] != 0 or starts[-1] != size:
        yield f"{name}: goes from byte {starts[0]} to {starts[-1]}; expected 0 to {size}"
    # A text may be empty; a compressed frame cannot.
    least, right = (0, "at or after") if what == "value" else (1, "after")
    for number in _first_wrong(
        count, lambda start, stop: np.diff(starts[start : stop + 1]) < least
    ):
        yield (
            f"{name}: {what} {number} goes from byte {starts[number]} to {starts[number + 1]}; "
            f"expected an end {right} its start"
        )


def _code_problems(dataset: Dataset, text: TextColumn, num_values: int) -> Iterator[str]:
    width = math.prod(text.shape)
    codes = map_array(dataset.folder / text.filename, "<i4", (len(dataset) * width,))

    def wrong(start: int, stop: int) -> np.ndarray:
        return (codes[start:stop] < 0) | (codes[start:stop] >= num_values)

    for place in _first_wrong(len(codes), wrong):
        yield (
            f"{text.filename}: row {place // width} has the code {codes[place]}; "
            f"expected one from 0 to {num_values - 1}"
        )


Leaves = dict[Key, torch.Tensor]
"""Columns of consecutive rows, each ``[n, *shape]``."""

FLAGS = (DONE, TERMINATED, TRUNCATED)
SCHEMA = "schema"


class Invariants:
    """Checks the rules of one dataset, and collects the violations."""

    # offsets: of the trajectories, int64 `[K + 1]`.

    def __init__(self, manifest: Manifest, offsets: np.ndarray) -> None:
        self._offsets = offsets
        self._is_shifted = manifest.successors.get("rule") == SHIFTED
        self._binds = manifest.parent is None
        keys = {column.key for column in manifest.columns}
        self._shared = sorted(
            key for key in keys if key[0] == "observation" and successor_of(key) in keys
        )
        self.problems: dict[str, str] = {}
        """The first violation of each rule."""
        if self._binds:
            self._check_columns(manifest)

    def check(self, start: int, leaves: Leaves) -> None:
        """Check consecutive rows."""
        if not self._binds or SCHEMA in self.problems:
            return
        num_rows = int(self._offsets[-1])
        num_given = len(next(iter(leaves.values())))
        num_checked = num_given if start + num_given == num_rows else num_given - 1
        rows = {key: leaf[:num_checked] for key, leaf in leaves.items()}
        for rule, wrong in self._flags(start, rows):
            self._note(rule, start, wrong)
        for key in ROOT_FLAGS:
            self._note(f"{show_key(key)} is false", start, rows[key].numpy()[:, 0])
        numbers = numbers_of(self._offsets, start, start + num_checked)
        wrong = rows[EPISODE].numpy() != numbers
        self._note("episode is the number of the trajectory", start, wrong)
        if self._is_shifted:
            for key in self._shared:
                self._successors(start, key, leaves, num_checked)

    def _check_columns(self, manifest: Manifest) -> None:
        """Check the dtypes and shapes of the columns that the rules read."""
        kinds = {column.key: (column.dtype, column.shape) for column in manifest.columns}
        expected: dict[Key, tuple[str, tuple[int, ...]]] = {EPISODE: ("int64", ())}
        expected |= dict.fromkeys((*FLAGS, *ROOT_FLAGS), ("bool", (1,)))
        for key, (dtype, shape) in expected.items():
            if kinds.get(key) != (dtype, shape):
                self.problems[SCHEMA] = (
                    f"{show_key(key)} is {kinds.get(key, 'missing')}; expected {dtype} "
                    f"{list(shape)}"
                )

    def _flags(self, start: int, rows: Leaves) -> Iterator[tuple[str, np.ndarray]]:
        done, terminated, truncated = (rows[key].numpy()[:, 0] for key in FLAGS)
        ends = ends_of(self._offsets, start, start + len(done))
        yield "next.done is next.terminated or next.truncated", done != (terminated | truncated)
        yield "every trajectory ends with next.done", ends & ~done
        yield "next.done is false before the end of a trajectory", done & ~ends

    def _successors(self, start: int, key: Key, leaves: Leaves, num_checked: int) -> None:
        following = bytes_of(leaves[key])[1:]
        successors = bytes_of(leaves[successor_of(key)])
        ends = ends_of(self._offsets, start, start + num_checked)
        # The last row of the dataset ends a trajectory, so every other row has a row after it.
        inner = np.flatnonzero(~ends)
        differs = np.zeros(num_checked, np.bool_)
        differs[inner] = (following[inner] != successors[inner]).any(dim=1).numpy()
        name = show_key(successor_of(key))
        self._note(f"{name} is the following row's", start, differs)
        terminated = np.flatnonzero(leaves[TERMINATED].numpy()[:num_checked, 0])
        differs = np.zeros(num_checked, np.bool_)
        differs[terminated] = successors[terminated].any(dim=1).numpy()
        self._note(f"{name} is zero after a terminated step", start, differs)

    def _note(self, rule: str, start: int, wrong: np.ndarray) -> None:
        if rule not in self.problems and wrong.any():
            self.problems[rule] = f"row {start + int(wrong.argmax())} breaks the rule that {rule}"


def deep_check(dataset: Dataset, progress: Progress) -> DeepReport:
    """Read every value of an opened dataset, and return the report of its numbers."""
    # Of text only codes and offsets are checked: all bytes are valid values. Wrong offsets are
    # reported before any row is read.
    if problems := [*offset_problems(dataset), *final_problems(dataset)]:
        raise _damaged(dataset, problems)
    invariants = Invariants(dataset.manifest, dataset.offsets.numpy())
    keys = [column.key for column in dataset.manifest.columns]
    ranges: dict[Key, ColumnRange] = {}
    num_rows = len(dataset)
    step = rows_per_block(dataset.row_bytes)
    for start in range(0, num_rows, step):
        stop = min(start + step, num_rows)
        # One row more than the block, for the successor of its last row.
        tree = dataset.run(start, min(stop + 1, num_rows))
        leaves = {key: entry(tree, key) for key in keys}
        invariants.check(start, leaves)
        for key, leaf in leaves.items():
            block = ColumnRange.of(_numbers(leaf[: stop - start]))
            if key in ranges:
                ranges[key].join(block)
            else:
                ranges[key] = block
        progress(Rows(dataset.id, stop, num_rows))
    num_frames = _decode_all(dataset)
    if invariants.problems:
        raise _damaged(dataset, list(invariants.problems.values()))
    return DeepReport(
        num_rows,
        dataset.manifest.num_trajectories,
        num_frames,
        tuple(_report(key, found) for key, found in ranges.items()),
    )


def _decode_all(dataset: Dataset) -> int:
    """Decode the frames that no row contains; return the number of all frames."""
    # A row contains the frame of its record and, as successor, the frame of the next record.
    # Without a successor, no row contains the frame of the last record of a trajectory.
    if dataset.manifest.layout != "compact":
        return 0
    record = dataset.record
    for field in record.frames:
        if field.successor is None:
            listed = dataset.manifest.files
            reader = FrameReader.of(field, dataset.folder, listed, record.num_records)
            step = rows_per_block(field.column.row_bytes)
            for first in range(0, record.num_records, step):
                reader.read(np.arange(first, min(first + step, record.num_records)))
    return record.num_records * len(record.frames)


def _damaged(dataset: Dataset, problems: list[str]) -> DamagedDataset:
    id = dataset.id
    return DamagedDataset(
        f"{id} under {dataset.folder} breaks the rules of the format: {'; '.join(problems)}. "
        "Its files match their checksums: the recipe or an older version of rlds wrote them wrong.",
        id=id,
        path=dataset.folder,
        found=problems,
        advice="Upgrade rlds, and install or derive the dataset again.",
    )


def _numbers(leaf: torch.Tensor) -> np.ndarray:
    """Return rows as numbers ``[n, size]``, or as bytes if numpy cannot compute with them."""
    numbers = plain_numbers(to_array(leaf))
    if numbers is None:
        numbers = bytes_of(leaf).numpy().view("V1")
    return numbers.reshape(len(leaf), -1)


def _report(key: Key, found: ColumnRange) -> ColumnReport:
    num_nan, num_infinite = int(found.num_nan.sum()), int(found.num_infinite.sum())
    return ColumnReport(key, num_nan, num_infinite, *found.whole, bool(found.is_constant.all()))
