"""Reads every row and decodes every frame of a dataset, in bounded memory."""

from __future__ import annotations

import numpy as np
import torch

from datasets_cli.core.progress import Progress, Rows
from datasets_cli.errors import DamagedDataset
from datasets_cli.schema.bits import bytes_of, to_array
from datasets_cli.schema.column_statistics import ColumnRange
from datasets_cli.schema.columns import Key, rows_per_block
from datasets_cli.schema.tree import entry
from datasets_cli.store.arrays import plain_numbers
from datasets_cli.store.dataset import Dataset
from datasets_cli.store.deep_check.invariants import Invariants
from datasets_cli.store.deep_check.offsets import offset_problems
from datasets_cli.store.deep_check.report import ColumnReport, DeepReport
from datasets_cli.store.layouts.frames import FrameReader


def deep_check(dataset: Dataset, progress: Progress) -> DeepReport:
    """Read every value of an opened dataset, and return the report of its numbers."""
    # Of text only codes and offsets are checked: all bytes are valid values. Wrong offsets are
    # reported before any row is read.
    if problems := list(offset_problems(dataset)):
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
