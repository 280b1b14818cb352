"""Checking where things begin: trajectories, records of rows, bytes of frames and of text."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from datasets_cli.store.compact.records import ROW_MAP, Record, row_map_dtype
from datasets_cli.store.dataset import Dataset
from datasets_cli.store.schema.mapping import map_file
from datasets_cli.store.schema.texts import OFFSETS_FILENAME, VALUES_FILENAME, TextColumn
from datasets_cli.store.schema.trajectories import numbers_of

CHUNK_ROWS = 1 << 20


def offset_problems(dataset: Dataset) -> Iterator[str]:
    """Yield what is wrong with the offsets of a dataset; opening it checks its trajectory table."""
    offsets = dataset.offsets.numpy()
    yield from _text_problems(dataset)
    if dataset.manifest.layout != "compact":
        return
    record = dataset.record
    num_records = len(dataset) + len(offsets) - 1  # each trajectory has one more than it has rows
    if record.num_records != num_records:
        yield (
            f"there are {record.num_records} records; expected {num_records}, one for each row "
            "and one more for each trajectory"
        )
        return
    yield from _row_map_problems(dataset.folder, record, offsets)
    for field in record.frames:
        size = int(dataset.manifest.files[field.filename]["bytes"])
        yield from _frame_problems(dataset.folder, f"{field.filename}.offsets", num_records, size)


def _row_map_problems(folder: Path, record: Record, offsets: np.ndarray) -> Iterator[str]:
    num_rows = int(offsets[-1])
    dtype = getattr(torch, row_map_dtype(record.num_records))
    row_map = map_file(folder / ROW_MAP, dtype, (num_rows,)).numpy()
    for start in range(0, num_rows, CHUNK_ROWS):
        stop = min(start + CHUNK_ROWS, num_rows)
        # Before row i are the records of i rows, and one more for each trajectory that has ended.
        expected = np.arange(start, stop) + numbers_of(offsets, start, stop)
        wrong = np.flatnonzero(row_map[start:stop] != expected)
        if len(wrong):
            first = int(wrong[0])
            yield (
                f"{ROW_MAP}: row {start + first} is record {row_map[start + first]}; expected "
                f"{expected[first]}"
            )
            return


def _frame_problems(folder: Path, name: str, num_frames: int, size: int) -> Iterator[str]:
    starts = _starts(folder, name, num_frames)
    if starts[0] != 0 or starts[-1] != size:
        yield f"{name}: goes from byte {starts[0]} to {starts[-1]}; expected 0 to {size}"
    for first in range(0, num_frames, CHUNK_ROWS):
        lengths = np.diff(starts[first : first + CHUNK_ROWS + 1])
        wrong = np.flatnonzero(lengths <= 0)
        if len(wrong):
            number = first + int(wrong[0])
            yield (
                f"{name}: frame {number} goes from byte {starts[number]} to {starts[number + 1]}; "
                "expected it to end after it begins"
            )
            return


def _text_problems(dataset: Dataset) -> Iterator[str]:
    """Yield what is wrong with where values of text begin, and with the numbers of values."""
    manifest = dataset.manifest
    if not manifest.texts:
        return
    num_values = int(manifest.files[OFFSETS_FILENAME]["bytes"]) // 8 - 1
    starts = _starts(dataset.folder, OFFSETS_FILENAME, num_values)
    size = int(manifest.files[VALUES_FILENAME]["bytes"])
    if starts[0] != 0 or starts[-1] != size:
        ends = f"from byte {starts[0]} to {starts[-1]}"
        yield f"{OFFSETS_FILENAME}: goes {ends}; expected 0 to {size}"
    for first in range(0, num_values, CHUNK_ROWS):
        wrong = np.flatnonzero(np.diff(starts[first : first + CHUNK_ROWS + 1]) < 0)
        if len(wrong):
            number = first + int(wrong[0])
            yield (
                f"{OFFSETS_FILENAME}: value {number} goes from byte {starts[number]} to "
                f"{starts[number + 1]}; expected it not to end before it begins"
            )
            break
    for text in manifest.texts:
        yield from _code_problems(dataset, text, num_values)


def _code_problems(dataset: Dataset, text: TextColumn, num_values: int) -> Iterator[str]:
    width = math.prod(text.shape)
    shape = (len(dataset) * width,)
    codes = map_file(dataset.folder / text.filename, torch.int32, shape).numpy()
    for first in range(0, len(codes), CHUNK_ROWS):
        some = codes[first : first + CHUNK_ROWS]
        wrong = np.flatnonzero((some < 0) | (some >= num_values))
        if len(wrong):
            place = int(wrong[0])
            yield (
                f"{text.filename}: row {(first + place) // width} has the code {some[place]}; "
                f"expected one from 0 to {num_values - 1}"
            )
            return


def _starts(folder: Path, name: str, count: int) -> np.ndarray:
    """Return where each of some values begins, and where the last one ends."""
    return map_file(folder / name, torch.int64, (count + 1,)).numpy()
