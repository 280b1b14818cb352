"""Returns to go: of each row the discounted sum of its reward and those after it.

gamma = g    row       0                1        2    3         4     trajectories of 3 and 2 rows
             returns   r0 + g r1 + gg r2  r1 + g r2  r2   r3 + g r4  r4

Rows come in blocks, the last ones first, so that a block needs one number of those after it: the
return to go of the next row. Memory does not grow with the rows, and nothing is summed over more
than one trajectory, or subtracted, so that sums are exact to the last digits of float64.
Those of a dataset are kept among its tables.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from datasets_cli.errors import RldsError, UsageError
from datasets_cli.replay.episodes.leaf_blocks import BLOCK_ROWS
from datasets_cli.replay.storages.dataset import DatasetStorage
from datasets_cli.replay.storages.frame_stack import FrameStack
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.transforms.steps import sum_to_go
from datasets_cli.schema.columns import REWARD, rows_per_block, show_key
from datasets_cli.schema.trajectories import ends_of
from datasets_cli.schema.tree import entry
from datasets_cli.store.cache_root import CacheRoot, has_manifest
from datasets_cli.store.dataset import Dataset, check_memory
from datasets_cli.store.rows.selected_rows import SelectedRowMap
from datasets_cli.store.rows.selection import Selection
from datasets_cli.store.table_arrays import map_array, write_array

logger = logging.getLogger(__name__)

OTHER_BLOCK_ROWS = 1024
"""Rows of a block where nobody knows how large they are, and all their entries are read."""

WIDE = frozenset({torch.float64, torch.int32, torch.int64, torch.uint32, torch.uint64})
"""Element types that have numbers which float32 does not have."""

RewardRows = Callable[[int, int], torch.Tensor]
"""Returns the rewards ``[n, *shape]`` of the rows from a first one up to another."""


def returns_to_go(
    storage: Storage, offsets: np.ndarray, gamma: float, root: CacheRoot | None
) -> np.ndarray:
    """Return the returns to go of every row, ``[N, *shape]``, to be read only."""
    # They are float32, or float64 where the rewards have numbers that float32 does not have; summed
    # in float64 in any case. Those of a view are of its trajectories: where it has cut one, of the
    # rows that are left.
    # offsets: of their trajectories, int64 `[K + 1]`.
    if not storage.has(REWARD):
        raise UsageError(
            f"These rows have no {show_key(REWARD)}, of which returns to go are the sums. Take "
            "slices instead: slice_len=."
        )
    dataset = dataset_of_rows(storage)
    if dataset is None:
        returns = _Returns(_rewards_of_storage(storage), offsets, gamma, OTHER_BLOCK_ROWS)
        return returns.work_out("returns to go")
    if dataset.selection is None or root is None:
        return _of_dataset(dataset, gamma, root)
    return _of_view(dataset, dataset.selection, gamma, root)


def _of_view(dataset: Dataset, selection: Selection, gamma: float, root: CacheRoot) -> np.ndarray:
    """Return copies of those of the dataset's rows, but of trajectories that the view has cut."""
    whole = dataset.whole
    offsets = whole.offsets.numpy()
    is_cut = ~selection.are_whole(offsets)
    if is_cut.all():
        return _of_dataset(dataset, gamma, None)
    returns = _of_dataset(whole, gamma, root)
    check_memory(len(dataset) * returns[0].nbytes, dataset.manifest.id)
    rows = SelectedRowMap(selection, offsets).rows(torch.arange(len(dataset)))
    found = returns.take(rows.numpy(), 0)
    if is_cut.any():
        cut = dataset.select(selection.at(np.flatnonzero(is_cut), ""))
        found[np.repeat(is_cut, selection.lengths)] = _of_dataset(cut, gamma, None)
    return found


def _of_dataset(dataset: Dataset, gamma: float, root: CacheRoot | None) -> np.ndarray:
    """Return those of a whole dataset; without a root, of a view too."""
    # By the size of whole rows: the compact layout copies records to give one leaf of them.
    row_bytes = sum(column.row_bytes for column in dataset.manifest.columns)
    block_rows = min(BLOCK_ROWS, rows_per_block(row_bytes))
    offsets = dataset.offsets.numpy()
    returns = _Returns(_rewards_of_dataset(dataset), offsets, gamma, block_rows)
    found = None if root is None else returns.keep(dataset, root)
    return returns.work_out(dataset.manifest.id) if found is None else found


def dataset_of_rows(storage: Storage) -> Dataset | None:
    """Return the dataset whose rows a storage gives, under the dataset's numbers; None without."""
    return storage.dataset if isinstance(storage, DatasetStorage | FrameStack) else None


def _rewards_of_dataset(dataset: Dataset) -> RewardRows:
    reader = dataset.rows_of(frozenset({REWARD}))  # no other leaf is read
    return lambda start, stop: entry(reader.gather(torch.arange(start, stop)), REWARD)


def _rewards_of_storage(storage: Storage) -> RewardRows:
    def read(start: int, stop: int) -> torch.Tensor:
        rewards = storage.entry(REWARD, torch.arange(start, stop))
        assert rewards is not None, "has() said so"
        return rewards

    return read


@dataclass(frozen=True)
class _Returns:
    """What the returns to go of rows are, before they are worked out."""

    rewards: RewardRows
    offsets: np.ndarray
    gamma: float
    block_rows: int

    def work_out(self, what: str) -> np.ndarray:
        """Return them in memory; ``what`` they are is for the message that there is none."""
        dtype, shape = self._form()
        check_memory(math.prod(shape) * dtype.itemsize, what)
        found = np.empty(shape, dtype)
        for first, rows in self._blocks(dtype):
            found[first : first + len(rows)] = rows.reshape(-1, *shape[1:])
        return found

    def keep(self, dataset: Dataset, root: CacheRoot) -> np.ndarray | None:
        """Return them from their file, which is written first if need be; None if it cannot be."""
        name = f"returns-to-go-{self.gamma!r}"
        dtype, shape = self._form()
        content = dataset.manifest.content
        found = map_array(root, content, name, dtype, shape)
        # Nothing is kept of a dataset that was deleted while it was open.
        if found is None and has_manifest(dataset.folder):
            try:
                write_array(root, content, name, dtype, shape, self._blocks(dtype))
                found = map_array(root, content, name, dtype, shape)
            except (OSError, RldsError) as error:  # they can be had in memory, too
                logger.debug("%s of %s is not kept: %s", name, content, error)
        return found

    def _form(self) -> tuple[np.dtype, tuple[int, ...]]:
        first = self.rewards(0, 1)
        # One number a row is [N, 1], whatever the shape of the rewards.
        return returns_dtype(first), (int(self.offsets[-1]), *(first.shape[1:] or (1,)))

    def _blocks(self, dtype: np.dtype) -> Iterator[tuple[int, np.ndarray]]:
        blocks = returns_in_blocks(self.rewards, self.offsets, self.gamma, self.block_rows)
        for first, rows in blocks:
            with np.errstate(over="ignore"):  # infinity is a result
                yield first, rows.astype(dtype)


def returns_in_blocks(
    rewards: RewardRows, offsets: np.ndarray, gamma: float, block_rows: int
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the first row of each block, and its returns to go float64 ``[n, *shape]``."""
    # offsets: of trajectories, int64 `[K + 1]`.
    num_rows = int(offsets[-1])
    following = torch.zeros(())  # the return to go of the row after the block
    for start in reversed(range(0, num_rows, block_rows)):
        stop = min(start + block_rows, num_rows)
        values = rewards(start, stop).to("cpu", torch.float64, copy=True)
        ends = torch.from_numpy(ends_of(offsets, start, stop))
        if gamma and not ends[-1]:
            values[-1] += gamma * following
        total = sum_to_go(values, ends, gamma)
        following = total[0]
        yield start, total.numpy()


def returns_dtype(rewards: torch.Tensor) -> np.dtype:
    """Return the type of the returns to go of rewards: float32, or float64 where these need it."""
    try:
        is_real = not rewards.is_complex() and rewards.double() is not None
    except (NotImplementedError, RuntimeError):  # torch does not compute with this type
        is_real = False
    if not is_real:
        raise UsageError(
            f"{show_key(REWARD)} is {rewards.dtype}; returns to go are sums of real numbers. "
            "Convert it with preprocess() first."
        )
    return np.dtype(np.float64 if rewards.dtype in WIDE else np.float32)
