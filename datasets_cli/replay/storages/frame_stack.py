"""Frame stacks, made when a batch is sampled: nothing is stored twice."""

from __future__ import annotations

import functools
from typing import Literal

import torch
from tensordict import TensorDict

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import StateDict, whole_number
from datasets_cli.replay.nested_keys import NestedKey, key_of
from datasets_cli.replay.storages.batches import put_texts
from datasets_cli.replay.storages.dataset import DatasetStorage
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.trajectories.boundaries import TrajectoryKeys
from datasets_cli.replay.trajectories.index import TrajectoryIndex
from datasets_cli.schema.bits import fill_rows, join_tensors
from datasets_cli.schema.columns import Key, key_in, show_key
from datasets_cli.schema.tree import Tree, put
from datasets_cli.store.text_rows import Values

Padding = Literal["zeros", "repeat"]


class FrameStack(Storage):
    """A storage whose observations are the last steps of their trajectory, oldest first.

        trajectory            o0 o1 o2 o3 o4
        row 2, length 3       observation o0 o1 o2, next.observation o1 o2 o3
        row 0, length 3       observation  .  . o0, next.observation  . o0 o1      . is padding

    One run of ``length + 1`` steps is read for both.

    Args:
        storage: the rows.
        length: steps in a stack, from 1 on.
        key: what is stacked; its successor is stacked too.
        padding: what stands before a trajectory's first step: zeros, or that step again.

    Raises:
        UsageError: the dataset has no such leaf with a successor, or the arguments make no sense.
    """

    def __init__(
        self,
        storage: DatasetStorage,
        length: int,
        *,
        key: NestedKey = ("observation",),
        padding: Padding = "zeros",
    ) -> None:
        self.length = whole_number("length", length, 1)
        if padding not in ("zeros", "repeat"):
            raise UsageError(f"padding is 'zeros' or 'repeat', not {padding!r}.")
        if not isinstance(storage, DatasetStorage):
            raise UsageError(
                "FrameStack stacks the steps of a dataset, which open_storage(folder) opens, not "
                f"of a {type(storage).__name__}. CatFrames stacks those of other storages."
            )
        dataset = storage.dataset
        key = key_in(dataset.keys, key_of(key))
        pair = {key, ("next", *key)}
        if not pair <= {column.key for column in dataset.columns_read}:
            raise UsageError(
                f"{dataset.id} has no {show_key(key)} with a successor to stack, or "
                "columns= leaves one of them out."
            )
        self.dataset = dataset
        self.device_options = dataset.device_options
        self.device = self.device_options.device or torch.device("cpu")
        self.no_rows = storage.no_rows
        self._storage = storage
        self._padding = padding
        self._key = key
        self._zeros = padding == "zeros"
        self._rest = dataset.rows_of(frozenset(dataset.keys) - pair)
        self._pair = dataset.rows_of(frozenset(pair))
        self._starts = dataset.offsets[:-1]

    def __len__(self) -> int:
        return len(self.dataset)

    def __reduce__(self) -> tuple[object, ...]:
        made = functools.partial(FrameStack, key=self._key, padding=self._padding)
        return made, (self._storage, self.length)

    def __repr__(self) -> str:
        return f"FrameStack({self._storage!r}, {self.length})"

    def reference(self) -> StateDict:
        """Return what names the dataset of the single steps."""
        return self._storage.reference()

    def has(self, key: Key) -> bool:
        """Return whether rows have a leaf."""
        return self._storage.has(key)

    def trajectories(self, keys: TrajectoryKeys) -> TrajectoryIndex:
        """Return the trajectories; see ``DatasetStorage.trajectories``."""
        return self._storage.trajectories(keys)

    def scalar_column(self, key: Key) -> torch.Tensor:
        """Return a column of one number a row, ``[rows, 1]``."""
        return self._storage.scalar_column(key)

    def entry(self, key: Key, rows: torch.Tensor) -> torch.Tensor | None:
        """Return an entry of some rows, or None where there is no such entry."""
        is_stacked = key in (self._key, ("next", *self._key))
        return super().entry(key, rows) if is_stacked else self._storage.entry(key, rows)

    def over(self, storage: DatasetStorage) -> FrameStack:
        """Return the same stacks of other rows; none has a step that is not among these."""
        return FrameStack(storage, self.length, key=self._key, padding=self._padding)

    @property
    def offsets(self) -> torch.Tensor:
        """A copy of the offsets int64 ``[K + 1]``; trajectory k is rows ``offsets[k:k+2]``."""
        return self.dataset.offsets

    def gather(self, index: torch.Tensor) -> Tree:
        """Return copies ``[B, ...]`` of the rows, stacks ``[B, length, ...]``, as a nested dict."""
        tree = self._rest.gather(index)
        index = index.cpu()
        # By numpy: torch's own search waits for its threads where cores are busy.
        numbers = index.numpy()
        starts = self._starts.numpy()
        first = starts.take(starts.searchsorted(numbers, side="right") - 1)
        age = torch.from_numpy(numbers - first)
        run = self._pair.history(self._key, index, age, self.length)
        if self._zeros:
            # Column c of the run is the step age - length + 1 + c of its trajectory.
            missing = self.length - 1 - age
            padded = torch.arange(self.length + 1) < missing.unsqueeze(1)
            # A mask of all frames would take 100 times as long as the numbers of the few.
            if len(frames := padded.flatten().nonzero().flatten()):
                fill_rows(run.view(padded.numel(), *run.shape[2:]), frames)
        put(tree, self._key, run[:, :-1])
        # A copy: the two must not share memory, or a change of one would change the other.
        following = self.dataset.device_options.to_output(join_tensors([run[:, 1:]]))
        put(tree, ("next", *self._key), following)
        if self.dataset.texts is not None:
            put_texts(tree, self.dataset.texts, index)
        return tree

    def get(self, index: torch.Tensor) -> TensorDict:
        """Return copies of the rows ``index`` int64 ``[B]`` as a TensorDict ``[B]``."""
        self.dataset.check_memory(len(index) * (self.length + 1))
        return self.as_batch(self.gather(index), index.shape)

    def column(self, key: Key) -> torch.Tensor | TensorDict | Values:
        """Return a copy of one leaf of single steps, not stacked; see ``DatasetStorage.column``."""
        return self._storage.column(key)
