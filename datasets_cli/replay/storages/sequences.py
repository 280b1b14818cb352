"""A storage of sequences: row r is the sequence that starts at row r of another storage."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass
from numbers import Real

import numpy as np
import torch
from tensordict import NonTensorStack, TensorDict

from datasets_cli.core.options import takes_fields
from datasets_cli.core.system_errors import check_memory
from datasets_cli.errors import (
    EmptyBuffer,
    NoRewards,
    Unsupported,
    WrongRows,
    wrong_value,
)
from datasets_cli.replay.arguments import StateDict, checked_fraction, whole_number
from datasets_cli.replay.storages.collate import stack_texts
from datasets_cli.replay.storages.dataset import DatasetStorage, FrameStack
from datasets_cli.replay.storages.options import PaddedSide, SequenceOptions
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.trajectories.bounds import (
    FROM_STORAGE,
    TrajectoryIndex,
    TrajectoryKeys,
    sum_to_go,
)
from datasets_cli.replay.trajectories.trajectory_table import (
    BLOCK_ROWS,
    Blocks,
    cached_array,
    joined,
    values_of_view,
)
from datasets_cli.schema.bits import MOVABLE, fill_rows
from datasets_cli.schema.columns import REWARD, Key, rows_per_block, show_key, wrong_column
from datasets_cli.schema.shapes import MaskArray, OffsetArray, RowArray, RowNumbers
from datasets_cli.schema.trajectories import ends_of
from datasets_cli.schema.tree import Tree, entry
from datasets_cli.store.arrays import plain_numbers
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.dataset import Dataset

OTHER_BLOCK_ROWS = 1024
"""Rows of a block in other storages, whose rows have an unknown size and are read whole."""

WIDE = frozenset({torch.float64, torch.int32, torch.int64, torch.uint32, torch.uint64})
"""Dtypes with numbers that float32 cannot represent."""

RewardRows = Callable[[int, int], torch.Tensor]
"""A function of a start and a stop that returns the rewards ``[n, *shape]`` of these rows."""

FinalRewards = tuple[RowArray, np.ndarray]
"""The rows before final steps, ascending, and rewards of these steps, float64 ``[n, *shape]``."""


def returns_to_go(
    storage: Storage, offsets: OffsetArray, gamma: float, root: CacheRoot | None
) -> np.ndarray:
    """Return the returns to go of every row, read-only ``[N, *shape]``.

    The sums are float64, the results float32, or float64 if the dtype of the rewards needs it. They
    include the rewards of final steps. In a view they are sums over the rows of the view, and over
    the final steps of trajectories with their last row.
    """
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
    """Return the returns to go of a dataset, cached under a root, or of a view."""
    # By the size of whole rows, which is equal in both layouts.
    block_rows = min(BLOCK_ROWS, rows_per_block(dataset.row_bytes))
    rewards = _rewards_of_dataset(dataset)
    form = dtype, _ = _form(rewards, len(dataset))

    def compute() -> Blocks:
        after = final_rewards(dataset)
        return _blocks(rewards, dataset.starts, gamma, block_rows, dtype, after)

    return cached_array(dataset, root, f"returns-to-go-{gamma!r}", form, compute)


def final_rewards(dataset: Dataset) -> FinalRewards | None:
    """Return the rewards of the final steps of a dataset or a view, or None without any."""
    numbers, places = dataset.final_places()
    if not len(numbers):
        return None
    rewards = plain_numbers(dataset.final[REWARD][places])
    assert rewards is not None, "returns are sums of real numbers"
    return dataset.starts[numbers + 1] - 1, rewards.astype(np.float64)


def dataset_of_rows(storage: Storage) -> Dataset | None:
    """Return the dataset of a storage with the same row numbers, or None."""
    return storage.dataset if isinstance(storage, DatasetStorage | FrameStack) else None


def _rewards_of_dataset(dataset: Dataset) -> RewardRows:
    reader = dataset.rows_of(frozenset({REWARD}))  # no other leaf is read
    return lambda start, stop: entry(reader.run(start, stop), REWARD)


def _rewards_of_storage(storage: Storage) -> RewardRows:
    def read(start: int, stop: int) -> torch.Tensor:
        rewards = storage.entry(REWARD, torch.arange(start, stop))
        assert rewards is not None, "the storage has rewards"
        return rewards

    return read


def _form(rewards: RewardRows, num_rows: int) -> tuple[np.dtype, tuple[int, ...]]:
    first = rewards(0, 1)
    # Rewards [N] have returns [N, 1].
    return returns_dtype(first), (num_rows, *(first.shape[1:] or (1,)))


def _blocks(
    rewards: RewardRows,
    offsets: OffsetArray,
    gamma: float,
    block_rows: int,
    dtype: np.dtype,
    after: FinalRewards | None = None,
) -> Blocks:
    for first, returns in returns_in_blocks(rewards, offsets, gamma, block_rows, after):
        with np.errstate(over="ignore"):  # infinity is a result
            yield first, returns.astype(dtype)


def returns_in_blocks(
    rewards: RewardRows,
    offsets: OffsetArray,
    gamma: float,
    block_rows: int,
    after: FinalRewards | None = None,
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the first row of each block, and its returns to go float64 ``[n, *shape]``.

    row          0 1 2 | 3 4 5 | 6 7 8      blocks of 3 rows, the last one first
    following          ^ 3     ^ 6          the return to go of the row after the block
    """
    num_rows = int(offsets[-1])
    following = torch.zeros(())
    for start in reversed(range(0, num_rows, block_rows)):
        stop = min(start + block_rows, num_rows)
        values = rewards(start, stop).to("cpu", torch.float64, copy=True)
        ends = torch.from_numpy(ends_of(offsets, start, stop))
        if gamma and not ends[-1]:
            values[-1] += gamma * following
        if gamma and after is not None:
            first, last = np.searchsorted(after[0], (start, stop))
            values[after[0][first:last] - start] += gamma * torch.from_numpy(after[1][first:last])
        total = sum_to_go(values, ends, gamma)
        following = total[0]
        yield start, total.numpy()


def returns_dtype(rewards: torch.Tensor) -> np.dtype:
    """Return the dtype of the returns to go: float32, or float64 if the rewards need it."""
    try:
        is_real = not rewards.is_complex() and rewards.double() is not None
    except (NotImplementedError, RuntimeError):  # torch does not compute with this dtype
        is_real = False
    if not is_real:
        raise wrong_column(
            REWARD, "real numbers", rewards.dtype, "Convert it with preprocess() first."
        )
    return np.dtype(np.float64 if rewards.dtype in WIDE else np.float32)


def consecutive_offsets(storage: Storage) -> OffsetArray:
    """Return the offsets of trajectories, or raise if their rows are not contiguous."""
    index = storage.trajectories(FROM_STORAGE)
    offsets = np.append(index.starts.numpy(), len(storage))
    # Each trajectory has contiguous rows and ends where the next one starts.
    is_run = index.order is None and index.stride == 1
    if not is_run or offsets[0] or not np.array_equal(np.diff(offsets), index.lengths.numpy()):
        raise WrongRows(
            "Sequences need trajectories of contiguous rows; this storage interleaves its "
            "trajectories, or is a ring."
        )
    return offsets


ACTION: Key = ("action",)
RETURNS, TIMESTEPS, MASK = "returns_to_go", "timesteps", "attention_mask"


@dataclass(frozen=True)
class SequenceStorageOptions(SequenceOptions):
    """Options of ``Sequences``.

    Args:
        storage: read-only rows, such as a dataset, a view, or stacked frames.
        length: T, the steps of a sequence.
        root: the cache root, which caches the returns to go of a dataset; None for no cache.
    """

    storage: Storage
    length: int
    _: KW_ONLY
    root: CacheRoot | None = None


class Sequences(Storage):
    """A storage of sequences, the training data of Decision Transformers.

        rows         0 1 2 3 4 | 5 6 7        two trajectories
        sequences    0 1 2   1 2 3   2 3 4   . 3 4   . . 4   5 6 7   . 6 7   . . 7

    Each row starts one sequence. Uniform sampling of rows thus draws trajectories in proportion to
    their length, and the start within a trajectory uniformly; sampling without replacement draws
    each start once. A batch ``[B, T]`` has every leaf of the rows, and

    - ``returns_to_go`` ``[B, T, 1]``: the discounted sum of the rewards from this row to the end of
      the recorded trajectory, its final step included, for each number of the rewards.
      Demonstrations without rewards do not have this leaf;
    - ``timesteps`` int64 ``[B, T]``: the step within the trajectory, counted from 0;
    - ``attention_mask`` bool ``[B, T]``: False for padding, which is zeros, and ``""`` for text.

    Raises:
        Unsupported: the storage is writable.
        WrongRows: rows are not TensorDicts or already have one of the three entries, or their
            trajectories are not contiguous.
        NoRewards: the rows have no rewards.
        EmptyBuffer: the storage is empty.
        UsageError: an argument is out of range.

    Attributes:
        rows: the storage of the rows.
        dataset: the dataset of the rows, or None.
    """

    @takes_fields(SequenceStorageOptions)
    def __init__(self, options: SequenceStorageOptions) -> None:
        storage, root = options.storage, options.root
        self.length = whole_number("length", options.length, 1)
        check_rows(storage, (RETURNS, TIMESTEPS, MASK))
        check_padding(storage, ACTION, options.action_padding)
        self.rows = storage
        self.gamma = checked_fraction("gamma", options.gamma)
        self.padding = options.padding
        self.action_padding = options.action_padding
        self.root = root
        self.dataset = dataset_of_rows(storage)
        self.device, self.device_options = storage.device, storage.device_options
        self.row_batch_size = (self.length,)
        self._offsets = consecutive_offsets(storage)
        self._returns: np.ndarray | None = None
        if self.gamma != 1 and self.dataset is not None:
            self.dataset.manifest.check_rewards("gamma")
        if self.dataset is None or self.dataset.manifest.has_rewards:
            self._returns = returns_to_go(storage, self._offsets, self.gamma, root)

    def __len__(self) -> int:
        return len(self.rows)

    def __reduce__(self) -> tuple[object, ...]:
        create = functools.partial(
            Sequences,
            gamma=self.gamma,
            padding=self.padding,
            action_padding=self.action_padding,
            root=self.root,
        )
        return create, (self.rows, self.length)  # the cache is read where this is unpickled

    def __repr__(self) -> str:
        return f"Sequences({self.rows!r}, {self.length}, gamma={self.gamma})"

    def reference(self) -> StateDict | None:
        """Return the id, content and number of rows of the dataset, or None."""
        return self.rows.reference()

    def has(self, key: Key) -> bool:
        if key == (RETURNS,):
            return self._returns is not None
        return key in ((TIMESTEPS,), (MASK,)) or self.rows.has(key)

    def gather(self, index: RowNumbers) -> Tree:
        """Return copies ``[B, T, ...]`` of the sequences that start at rows."""
        sequences = _sequence_rows(index.cpu().numpy(), self._offsets, self.length, self.padding)
        tree: Tree = self.rows.gather(torch.from_numpy(sequences.rows))
        self._shape(tree, torch.from_numpy(sequences.padding), ())
        more = {TIMESTEPS: sequences.timesteps, MASK: sequences.is_row}
        if self._returns is not None:
            returns = self._returns.take(sequences.rows, 0)
            returns[sequences.padding] = 0
            more[RETURNS] = returns.reshape(*sequences.is_row.shape, *returns.shape[1:])
        for name, values in more.items():
            tree[name] = self.device_options.to_output(torch.from_numpy(values))
        return tree

    def _shape(self, tree: Tree, padding: torch.Tensor, key: Key) -> None:
        """Fill the padding of leaves ``[B * T, ...]``, and reshape them to ``[B, T, ...]``.

        ``padding`` has the positions of the padding, int64 ``[n]``.
        """
        for name, leaf in tree.items():
            if isinstance(leaf, dict):
                self._shape(leaf, padding, (*key, name))
            elif isinstance(leaf, NonTensorStack):
                tree[name] = _texts(leaf, padding, self.length)
            else:
                if padding.numel():
                    is_action = (*key, name)[:1] == ACTION
                    fill_rows(leaf, padding, self.action_padding if is_action else 0)
                tree[name] = leaf.view(-1, self.length, *leaf.shape[1:])

    def get(self, index: RowNumbers) -> TensorDict:
        """Return copies of sequences as a TensorDict ``[B, T]``.

        Raises:
            UsageError: they need more than half of the free memory.
        """
        if self.dataset is not None:
            self.dataset.check_memory(len(index) * self.length)
        batch: TensorDict = self.as_batch(self.gather(index), index.shape)
        return batch

    def scalar_column(self, key: Key) -> torch.Tensor:
        """Raise ``Unsupported``: a sequence has several numbers of each column."""
        raise Unsupported(
            f"A sequence has {self.length} rows, not one number of {show_key(key)}.",
            key=key,
            expected=1,
            found=self.length,
        )

    def trajectories(self, keys: TrajectoryKeys) -> TrajectoryIndex:
        """Raise ``Unsupported``: sequences overlap, so they have no trajectories to slice."""
        raise Unsupported(
            "This buffer already returns sequences; slices of them would overlap.",
            argument="sampler",
            advice="Use a sampler of rows, such as RandomSampler() or SamplerWithoutReplacement().",
        )


@dataclass(frozen=True)
class _SequenceRows:
    """The rows of sequences, with their steps and padding."""

    rows: RowArray  # [B * T]; padding repeats a row of the sequence
    timesteps: np.ndarray  # the steps within trajectories, int64 [B, T]; 0 for padding
    is_row: MaskArray  # False for padding, [B, T]
    padding: np.ndarray  # the positions of padding in `rows`, int64 [n]


def _sequence_rows(
    first: RowArray, offsets: OffsetArray, length: int, side: PaddedSide
) -> _SequenceRows:
    """Return the rows of the sequences that start at the rows ``first``.

    trajectory of 5, sequences of 3

    first row      0        3          3
    padding                 left       right
    rows           0 1 2    . 3 4      3 4 .
    timesteps      0 1 2    0 3 4      3 4 0        . is padding; it reads the nearest row
    """
    # The trajectory of each sequence: the rows from start to stop - 1, both [B, 1].
    next_number = offsets.searchsorted(first, side="right")
    start = offsets[next_number - 1][:, None]
    stop = offsets[next_number][:, None]
    first = first[:, None]
    columns = np.arange(length)
    missing = np.maximum(first + length - stop, 0)  # rows beyond the end, [B, 1]
    if side == "left":
        # The last column has the last row; the first `missing` columns repeat the first row.
        rows = np.maximum(first + columns - missing, first)
        is_row = columns >= missing
    else:
        # The last `missing` columns repeat the last row.
        rows = np.minimum(first + columns, stop - 1)
        is_row = columns < length - missing
    timesteps = (rows - start) * is_row
    return _SequenceRows(rows.reshape(-1), timesteps, is_row, np.flatnonzero(~is_row))


def _texts(texts: NonTensorStack, padding: torch.Tensor, length: int) -> NonTensorStack:
    """Return texts ``[B * T, *shape]`` as ``[B, T, *shape]``, with ``""`` at the padding."""
    shape = tuple(texts.batch_size[1:])
    values = texts.tolist()
    for position in padding.tolist():
        values[position] = _empty(shape)
    grouped = [values[start : start + length] for start in range(0, len(values), length)]
    return stack_texts(grouped, (length, *shape))


def _empty(shape: tuple[int, ...]) -> object:
    return [_empty(shape[1:]) for _ in range(shape[0])] if shape else ""


def check_rows(storage: Storage, names: Iterable[str]) -> None:
    """Check that the rows of a storage are read-only TensorDicts without these entries."""
    kind = type(storage).__name__
    if storage.is_writable:
        raise Unsupported(
            f"Sequences need read-only rows, such as a dataset; a {kind} is writable.",
            argument="storage",
            found=kind,
            advice="Write whole trajectories there with "
            'append_transform(Reward2Go(out_keys=["to_go"])), and sample slices.',
        )
    if not storage.is_tensordict or storage.row_batch_size:
        size = list(storage.row_batch_size)
        found = f"TensorDicts {size}" if storage.is_tensordict else "not TensorDicts"
        raise WrongRows(
            "Sequences need rows that are TensorDicts without a batch size; the rows of this "
            f"{kind} are {found}.",
            argument="storage",
            expected="TensorDicts []",
            found=found,
        )
    if not len(storage):
        raise EmptyBuffer(f"Sequences need rows. {storage.no_rows}")
    for name in names:
        if storage.has((name,)):
            raise WrongRows(
                f"The rows already have {name}, an entry that sequences add.",
                key=name,
                advice="Rename it with preprocess() first.",
            )


def check_padding(storage: Storage, key: Key, value: float) -> None:
    """Check that every leaf at or below a key can have ``value``; every dtype has 0."""
    if not isinstance(value, Real):
        name = f"{show_key(key)}_padding"
        raise wrong_value(name, "a number", value)
    if value:
        _check_fits(value, entry(storage.gather(torch.tensor([0])), key), key)


def _check_fits(value: float, leaf: object, key: Key) -> None:
    if isinstance(leaf, dict):
        for name, part in leaf.items():
            _check_fits(value, part, (*key, name))
        return
    if not isinstance(leaf, torch.Tensor):
        raise wrong_column(key, "numbers to pad", type(leaf).__name__)
    dtype = leaf.dtype
    is_whole = not dtype.is_floating_point and not dtype.is_complex
    # Unsigned and narrow integers wrap around, which changes the number.
    if dtype not in MOVABLE or (is_whole and torch.tensor(value).to(dtype).item() != value):
        raise WrongRows(
            f"{value} is not a valid {dtype} to pad {show_key(key)} with.",
            key=key,
            expected=dtype,
            found=value,
            advice=f"Choose a number of {dtype}; attention_mask marks the padding.",
        )
