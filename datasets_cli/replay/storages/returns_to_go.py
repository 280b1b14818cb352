"""Returns to go: of each row the discounted sum of its reward and those after it.

gamma = g    row       0                1        2    3         4     trajectories of 3 and 2 rows
             returns   r0 + g r1 + gg r2  r1 + g r2  r2   r3 + g r4  r4

Rows come in blocks, the last ones first, so that a block needs one number of those after it: the
return to go of the next row. Memory does not grow with the rows, and nothing is summed over more
than one trajectory, or subtracted, so that sums are exact to the last digits of float64.
Those of a dataset are kept among its tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from numbers import Real

import numpy as np
import torch

from datasets_cli.errors import NoRewards, UsageError
from datasets_cli.replay.storages.dataset import DatasetStorage
from datasets_cli.replay.storages.frame_stack import FrameStack
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.trajectories.boundaries import FROM_STORAGE
from datasets_cli.replay.trajectories.bounds import sum_to_go
from datasets_cli.replay.trajectories.kept import Blocks, joined, kept_array, values_of_view
from datasets_cli.replay.trajectories.reductions import BLOCK_ROWS
from datasets_cli.schema.columns import REWARD, rows_per_block, show_key
from datasets_cli.schema.trajectories import ends_of
from datasets_cli.schema.tree import entry
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.dataset import Dataset
from datasets_cli.system_errors import check_memory

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
        raise NoRewards.of("a sequence with returns to go", "the storage")
    dataset = dataset_of_rows(storage)
    if dataset is None:
        rewards = _rewards_of_storage(storage)
        dtype, shape = _form(rewards, len(storage))
        check_memory(math.prod(shape) * dtype.itemsize, "returns to go")
        return joined(_blocks(rewards, offsets, gamma, OTHER_BLOCK_ROWS, dtype), dtype, shape)
    if root is None:
        return _of_dataset(dataset, gamma, None)
    return values_of_view(dataset, lambda part: _of_dataset(part, gamma, root), by_row=True)


def _of_dataset(dataset: Dataset, gamma: float, root: CacheRoot | None) -> np.ndarray:
    """Return those of a dataset, which are kept under a root, or of a view."""
    # By the size of whole rows, which is the same in every layout.
    block_rows = min(BLOCK_ROWS, rows_per_block(dataset.row_bytes))
    rewards = _rewards_of_dataset(dataset)
    form = dtype, _ = _form(rewards, len(dataset))

    def work_out() -> Blocks:
        return _blocks(rewards, dataset.offsets.numpy(), gamma, block_rows, dtype)

    return kept_array(dataset, root, f"returns-to-go-{gamma!r}", form, work_out)


def dataset_of_rows(storage: Storage) -> Dataset | None:
    """Return the dataset whose rows a storage gives, under the dataset's numbers; None without."""
    return storage.dataset if isinstance(storage, DatasetStorage | FrameStack) else None


def _rewards_of_dataset(dataset: Dataset) -> RewardRows:
    reader = dataset.rows_of(frozenset({REWARD}))  # no other leaf is read
    return lambda start, stop: entry(reader.run(start, stop), REWARD)


def _rewards_of_storage(storage: Storage) -> RewardRows:
    def read(start: int, stop: int) -> torch.Tensor:
        rewards = storage.entry(REWARD, torch.arange(start, stop))
        assert rewards is not None, "has() said so"
        return rewards

    return read


def _form(rewards: RewardRows, num_rows: int) -> tuple[np.dtype, tuple[int, ...]]:
    first = rewards(0, 1)
    # One number a row is [N, 1], whatever the shape of the rewards.
    return returns_dtype(first), (num_rows, *(first.shape[1:] or (1,)))


def _blocks(
    rewards: RewardRows, offsets: np.ndarray, gamma: float, block_rows: int, dtype: np.dtype
) -> Blocks:
    for first, returns in returns_in_blocks(rewards, offsets, gamma, block_rows):
        with np.errstate(over="ignore"):  # infinity is a result
            yield first, returns.astype(dtype)


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


def consecutive_offsets(storage: Storage) -> np.ndarray:
    """Return the offsets int64 ``[K + 1]`` of trajectories that are one after the other."""
    index = storage.trajectories(FROM_STORAGE)
    offsets = np.append(index.starts.numpy(), len(storage))
    # Each has its rows one after the other, up to where the next one begins.
    is_run = index.order is None and index.stride == 1
    if not is_run or offsets[0] or not np.array_equal(np.diff(offsets), index.lengths.numpy()):
        raise UsageError(
            "Sequences need trajectories whose rows are next to each other, one trajectory after "
            "the other; those of this storage are apart."
        )
    return offsets


def checked_discount(gamma: float) -> float:
    """Return the discount a step as a float."""
    if not isinstance(gamma, Real) or not 0 <= gamma <= 1:
        raise UsageError(f"gamma is a number from 0 to 1, not {gamma!r}.")
    return float(gamma)
