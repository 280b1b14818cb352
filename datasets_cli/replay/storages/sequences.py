"""Sequences as rows: row r of this storage is the sequence that begins at row r of another one."""

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
from datasets_cli.errors import EmptyBuffer, NoRewards, Unsupported, UsageError, WrongRows
from datasets_cli.replay.arguments import StateDict, whole_number
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
from datasets_cli.replay.trajectories.table import (
    BLOCK_ROWS,
    Blocks,
    cached_array,
    joined,
    values_of_view,
)
from datasets_cli.schema.bits import MOVABLE, fill_rows
from datasets_cli.schema.columns import REWARD, Key, rows_per_block, show_key
from datasets_cli.schema.trajectories import ends_of
from datasets_cli.schema.tree import Tree, entry
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.dataset import Dataset

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

    return cached_array(dataset, root, f"returns-to-go-{gamma!r}", form, work_out)


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
        raise WrongRows(
            f"{show_key(REWARD)} is {rewards.dtype}; returns to go are sums of real numbers.",
            key=REWARD,
            found=rewards.dtype,
            advice="Convert it with preprocess() first.",
        )
    return np.dtype(np.float64 if rewards.dtype in WIDE else np.float32)


def consecutive_offsets(storage: Storage) -> np.ndarray:
    """Return the offsets int64 ``[K + 1]`` of trajectories that are one after the other."""
    index = storage.trajectories(FROM_STORAGE)
    offsets = np.append(index.starts.numpy(), len(storage))
    # Each has its rows one after the other, up to where the next one begins.
    is_run = index.order is None and index.stride == 1
    if not is_run or offsets[0] or not np.array_equal(np.diff(offsets), index.lengths.numpy()):
        raise WrongRows(
            "Sequences need trajectories whose rows are next to each other; the rows of this "
            "storage's trajectories are apart."
        )
    return offsets


def checked_discount(gamma: float) -> float:
    """Return the discount a step as a float."""
    if not isinstance(gamma, Real) or not 0 <= gamma <= 1:
        raise UsageError(
            f"gamma is a number from 0 to 1, not {gamma!r}.", argument="gamma", found=gamma
        )
    return float(gamma)


ACTION: Key = ("action",)
RETURNS, TIMESTEPS, MASK = "returns_to_go", "timesteps", "attention_mask"


@dataclass(frozen=True)
class SequenceStorageOptions(SequenceOptions):
    """What ``Sequences`` takes.

    Args:
        storage: rows that do not change: of a dataset or a view, perhaps with stacked frames, or
            others.
        length: T.
        root: the cache root, to keep a dataset's returns to go under, so that they are worked out
            once; None for nowhere.
    """

    storage: Storage
    length: int
    _: KW_ONLY
    root: CacheRoot | None = None


class Sequences(Storage):
    """A storage whose rows are sequences, as Decision Transformers are trained on.

        rows         0 1 2 3 4 | 5 6 7        two trajectories
        sequences    0 1 2   1 2 3   2 3 4   . 3 4   . . 4   5 6 7   . 6 7   . . 7

    There is a sequence for each row, which it begins with. A sampler that draws rows alike thus
    draws a trajectory by its length and a beginning in it uniformly; one without replacement draws
    each beginning once. A batch ``[B, T]`` has every leaf of the rows, and

    - ``returns_to_go`` ``[B, T, 1]``: the sum of the row's reward and of those after it up to the
      end of the trajectory, as far as it was recorded; for each number of the rewards separately.
      Demonstrations without rewards have no such leaf;
    - ``timesteps`` int64 ``[B, T]``: the row's place in its trajectory, from 0 on;
    - ``attention_mask`` bool ``[B, T]``: False for padding, which is zeros, and text ``""``.

    Raises:
        UsageError: the rows can be written, are not TensorDicts, or have no rewards; they have an
            entry of the three names already; their trajectories are not one after the other; or
            an argument is out of range.

    Attributes:
        rows: as given.
        dataset: the dataset whose rows these are; None where they are others.
    """

    @takes_fields(SequenceStorageOptions)
    def __init__(self, options: SequenceStorageOptions) -> None:
        storage, root = options.storage, options.root
        self.length = whole_number("length", options.length, 1)
        check_rows(storage, (RETURNS, TIMESTEPS, MASK))
        check_padding(storage, ACTION, options.action_padding)
        self.rows = storage
        self.gamma = checked_discount(options.gamma)
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
        made = functools.partial(
            Sequences,
            gamma=self.gamma,
            padding=self.padding,
            action_padding=self.action_padding,
            root=self.root,
        )
        return made, (self.rows, self.length)  # what was kept is read where this is opened

    def __repr__(self) -> str:
        return f"Sequences({self.rows!r}, {self.length}, gamma={self.gamma})"

    def reference(self) -> StateDict | None:
        """Return what names the dataset of the rows."""
        return self.rows.reference()

    def has(self, key: Key) -> bool:
        if key == (RETURNS,):
            return self._returns is not None
        return key in ((TIMESTEPS,), (MASK,)) or self.rows.has(key)

    def gather(self, index: torch.Tensor) -> Tree:
        """Return copies ``[B, T, ...]`` of the sequences that begin at rows int64 ``[B]``."""
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
        """Fill the padding of leaves ``[B * T, ...]``, and let them be ``[B, T, ...]``."""
        # padding: places of padding, int64 `[n]`.
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

    def get(self, index: torch.Tensor) -> TensorDict:
        """Return copies of the sequences ``index`` int64 ``[B]`` as a TensorDict ``[B, T]``.

        Raises:
            UsageError: they would take more than half of the free memory.
        """
        if self.dataset is not None:
            self.dataset.check_memory(len(index) * self.length)
        batch: TensorDict = self.as_batch(self.gather(index), index.shape)
        return batch

    def scalar_column(self, key: Key) -> torch.Tensor:
        """Refuse: a sequence has several numbers of any entry."""
        raise Unsupported(
            f"A sequence has {self.length} rows, not one number of {show_key(key)}.", key=key
        )

    def trajectories(self, keys: TrajectoryKeys) -> TrajectoryIndex:
        """Refuse: sequences are cut already, and overlap."""
        raise Unsupported(
            "This buffer already returns sequences; slices of them would overlap.",
            argument="sampler",
            advice="Use a sampler of rows, such as RandomSampler() or SamplerWithoutReplacement().",
        )


@dataclass(frozen=True)
class _SequenceRows:
    """The rows of some sequences."""

    # rows: their numbers, int64 `[B * T]`; those of padding are of the sequence, too.
    # timesteps: of each row in its trajectory, int64 `[B, T]`; 0 where there is padding.
    # is_row: which are not padding, bool `[B, T]`.
    # padding: places of padding in `rows`, int64 `[n]`.

    rows: np.ndarray
    timesteps: np.ndarray
    is_row: np.ndarray
    padding: np.ndarray


def _sequence_rows(
    first: np.ndarray, offsets: np.ndarray, length: int, side: PaddedSide
) -> _SequenceRows:
    """Return the rows of sequences, each to its length or to the trajectory's end.

    trajectory of 5, sequences of 3

    first row      0        3          3
    padding                 left       right
    rows           0 1 2    . 3 4      3 4 .
    timesteps      0 1 2    0 3 4      3 4 0        . is padding, which reads a row that is there
    """
    # first: the first row of each, int64 `[B]`.
    # offsets: of trajectories, int64 `[K + 1]`.
    next_number = offsets.searchsorted(first, side="right")  # of the trajectory after
    start = offsets[next_number - 1][:, None]
    stop = offsets[next_number][:, None]
    first = first[:, None]
    places = np.arange(length)
    missing = np.maximum(first + length - stop, 0)  # rows beyond the end, [B, 1]
    if side == "left":
        # The last place has the last row; the first `missing` ones read the first row again.
        rows = np.maximum(first + places - missing, first)
        is_row = places >= missing
    else:
        rows = np.minimum(first + places, stop - 1)
        is_row = places < length - missing
    timesteps = (rows - start) * is_row
    return _SequenceRows(rows.reshape(-1), timesteps, is_row, np.flatnonzero(~is_row))


def _texts(texts: NonTensorStack, padding: torch.Tensor, length: int) -> NonTensorStack:
    """Return texts ``[B * T, *shape]`` as ``[B, T, *shape]``, with ``""`` as padding."""
    shape = tuple(texts.batch_size[1:])
    values = texts.tolist()
    for place in padding.tolist():
        values[place] = _empty(shape)
    grouped = [values[start : start + length] for start in range(0, len(values), length)]
    return stack_texts(grouped, (length, *shape))


def _empty(shape: tuple[int, ...]) -> object:
    return [_empty(shape[1:]) for _ in range(shape[0])] if shape else ""


def check_rows(storage: Storage, names: Iterable[str]) -> None:
    """Check that a storage has rows that sequences can be made of."""
    kind = type(storage).__name__
    if storage.is_writable:
        raise Unsupported(
            f"Sequences need rows that do not change, such as a dataset's, and a {kind} can be "
            "written.",
            advice="Write whole trajectories there with "
            'append_transform(Reward2Go(out_keys=["to_go"])), and sample slices.',
        )
    if not storage.is_tensordict or storage.row_batch_size:
        size = list(storage.row_batch_size)
        found = f"TensorDicts {size}" if storage.is_tensordict else "no TensorDicts"
        raise WrongRows(
            "Sequences need rows that are TensorDicts without a batch size; the rows of this "
            f"{kind} are {found}.",
            found=found,
        )
    if not len(storage):
        raise EmptyBuffer(f"Sequences cannot be made. {storage.no_rows}")
    for name in names:
        if storage.has((name,)):
            raise WrongRows(
                f"The rows already have {name}, which sequences would replace.",
                key=name,
                advice="Rename it with preprocess() first.",
            )


def check_padding(storage: Storage, key: Key, value: float) -> None:
    """Check that every leaf at or below a key can hold a number; 0 is one of every type."""
    if not isinstance(value, Real):
        name = f"{show_key(key)}_padding"
        raise UsageError(f"{name} is a number, not {value!r}.", argument=name, found=value)
    if value:
        _check_fits(value, entry(storage.gather(torch.tensor([0])), key), key)


def _check_fits(value: float, leaf: object, key: Key) -> None:
    if isinstance(leaf, dict):
        for name, part in leaf.items():
            _check_fits(value, part, (*key, name))
        return
    if not isinstance(leaf, torch.Tensor):
        raise WrongRows(
            f"The rows have no numbers at {show_key(key)} to pad with {value}.", key=key
        )
    dtype = leaf.dtype
    is_whole = not dtype.is_floating_point and not dtype.is_complex
    # Unsigned and narrow integers wrap around, which changes the number.
    if dtype not in MOVABLE or (is_whole and torch.tensor(value).to(dtype).item() != value):
        raise WrongRows(
            f"{show_key(key)} cannot be padded with {value}, which is not of {dtype}.",
            key=key,
            expected=dtype,
            found=value,
            advice=f"Choose a number of {dtype}; attention_mask marks the padding.",
        )
