"""A deep check: every row of a dataset is read, every frame decoded, in bounded memory."""

from __future__ import annotations

import numpy as np
import torch

from datasets_cli.errors import DamagedDataset
from datasets_cli.progress import Progress
from datasets_cli.schema.bits import bytes_of, plain_numbers
from datasets_cli.schema.columns import Key, rows_per_block
from datasets_cli.schema.tree import entry
from datasets_cli.store.dataset import Dataset
from datasets_cli.store.deep_check.invariants import Invariants
from datasets_cli.store.deep_check.offsets import offset_problems
from datasets_cli.store.deep_check.report import ColumnReport, DeepReport
from datasets_cli.store.layouts.frames import FrameReader


def deep_check(dataset: Dataset, progress: Progress) -> DeepReport:
    """Read every value of an opened dataset and return what there is to know about its numbers."""
    # Text is checked by its codes and offsets; any bytes are a value.
    # No row is read by offsets that are wrong.
    if problems := list(offset_problems(dataset)):
        raise _damaged(dataset, problems)
    invariants = Invariants(dataset.manifest, dataset.offsets.numpy())
    ranges = {column.key: ColumnRange(column.key) for column in dataset.manifest.columns}
    num_rows = len(dataset)
    step = rows_per_block(dataset.row_bytes)
    for start in range(0, num_rows, step):
        stop = min(start + step, num_rows)
        # One row more than the block has, for the successor of its last one.
        tree = dataset.gather(torch.arange(start, min(stop + 1, num_rows)))
        leaves = {key: entry(tree, key) for key in ranges}
        invariants.check(start, leaves)
        for key, column_range in ranges.items():
            column_range.add(leaves[key][: stop - start])
        progress.writing(stop)
    num_frames = _decode_all(dataset)
    if invariants.problems:
        raise _damaged(dataset, list(invariants.problems.values()))
    return DeepReport(
        num_rows,
        dataset.manifest.num_trajectories,
        num_frames,
        tuple(column_range.report() for column_range in ranges.values()),
    )


def _decode_all(dataset: Dataset) -> int:
    """Decode the frames that no row has, and return how many there are of all."""
    # A row has the frame of its record and, as successor, that of the next one; where a column has
    # no successor, no row has the frame of a trajectory's last record.
    if dataset.manifest.layout != "compact":
        return 0
    record = dataset.record
    for field in record.frames:
        if field.successor is None:
            shape = field.column.shape
            reader = FrameReader(
                dataset.folder / field.filename,
                record.num_records,
                shape,
                has_dictionary=field.dictionary in dataset.manifest.files,
            )
            step = rows_per_block(field.column.row_bytes)
            for first in range(0, record.num_records, step):
                reader.read(torch.arange(first, min(first + step, record.num_records)))
    return record.num_records * len(record.frames)


def _damaged(dataset: Dataset, problems: list[str]) -> DamagedDataset:
    id = dataset.manifest.id
    return DamagedDataset(
        f"{id} under {dataset.folder} breaks the rules of the format: {'; '.join(problems)}. "
        "Its files are as they were written, so that its recipe, or an older version of this "
        "program, wrote them wrong. Upgrade, and make it again"
    )


class ColumnRange:
    """NaN, infinity, smallest and largest number of one column, so far."""

    def __init__(self, key: Key) -> None:
        self._key = key
        self._num_nan = self._num_infinite = 0
        self._smallest: float | None = None
        self._largest: float | None = None
        self._first: torch.Tensor | None = None
        self._is_constant = True

    def add(self, leaf: torch.Tensor) -> None:
        """Add rows ``[n, *shape]`` of any element type; n is 1 or more."""
        numbers = plain_numbers(leaf)
        if numbers is not None and numbers.dtype.kind in "fc":
            leaf = torch.from_numpy(numbers + 0)  # zeros of both signs are one number
        bits = bytes_of(leaf)
        if self._first is None:
            self._first = bits[0].clone()
        self._is_constant = self._is_constant and bool((bits == self._first).all())
        if numbers is None or not numbers.size:
            return
        if numbers.dtype.kind in "fc":
            finite = np.isfinite(numbers)
            num_nan = int(np.isnan(numbers).sum())
            self._num_nan += num_nan
            self._num_infinite += int(numbers.size - finite.sum()) - num_nan
            if not finite.all():
                numbers = numbers[finite]
        if numbers.size and numbers.dtype.kind != "c":
            low, high = numbers.min().item(), numbers.max().item()
            self._smallest = low if self._smallest is None else min(self._smallest, low)
            self._largest = high if self._largest is None else max(self._largest, high)

    def report(self) -> ColumnReport:
        """Return what was found."""
        return ColumnReport(
            self._key,
            self._num_nan,
            self._num_infinite,
            _plain(self._smallest),
            _plain(self._largest),
            self._is_constant,
        )


def _plain(number: float | None) -> float | None:
    return int(number) if isinstance(number, bool) else number
