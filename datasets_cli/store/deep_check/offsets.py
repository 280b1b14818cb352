"""Checks offsets: of trajectories, of records, of frames and of text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from datasets_cli.schema.mapped_bytes import map_array
from datasets_cli.schema.texts import OFFSETS_FILENAME, VALUES_FILENAME, TextColumn
from datasets_cli.schema.trajectories import numbers_of
from datasets_cli.store.dataset import Dataset
from datasets_cli.store.layouts.records import ROW_MAP, Record, row_map_dtype

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
