"""Checking where things begin: trajectories, the records of rows, the bytes of frames."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from datasets_cli.store.compact.records import ROW_MAP, Record, row_map_dtype
from datasets_cli.store.dataset import Dataset
from datasets_cli.store.schema.mapping import map_file
from datasets_cli.store.schema.trajectories import numbers_of

CHUNK_ROWS = 1 << 20


def offset_problems(dataset: Dataset) -> Iterator[str]:
    """Yield what is wrong with the offsets of a dataset; opening it checks its trajectory table."""
    offsets = dataset.offsets.numpy()
    if dataset.manifest.layout != "compact":
        return
    record = Record.from_json(dataset.manifest.record)
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
    starts = map_file(folder / name, torch.int64, (num_frames + 1,)).numpy()
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
