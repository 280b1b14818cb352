"""Trajectories that a query finds, and what conditions read of any: numbers of their rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np
import torch
from tensordict import TensorDictBase

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import NestedKey, key_of
from datasets_cli.replay.trajectories.table import (
    AS_FLOAT32,
    BLOCK_ROWS,
    Reduction,
    Trajectories,
    reduce_blocks,
    reduced_dtype,
)
from datasets_cli.schema.bits import take
from datasets_cli.schema.columns import (
    EPISODE,
    Key,
    key_in,
    refuse_missing_reward,
    rows_per_block,
    show_key,
)
from datasets_cli.store.dataset import Dataset
from datasets_cli.torchrl.keywords import accepts_keywords


@accepts_keywords
class Trajectory:
    """The rows of one trajectory, in the order of time.

        found = rb.query(traj.length >= 50)[0]
        found.observation, found.reward, found["next", "observation"], found[:10]

    An attribute is the entry of that name, at the root or else below ``"next"``: a dataset's
    ``found.reward`` is ``found["next", "reward"]``. ``found[key]`` is exactly that entry, and
    ``found[rows]`` a trajectory of some of the rows. Everything else that a TensorDict does is done
    by ``data``.

    Args:
        data: the rows ``[T]``.

    Raises:
        UsageError: it is not a TensorDict.
    """

    def __init__(self, data: TensorDictBase) -> None:
        if not isinstance(data, TensorDictBase):
            raise UsageError(
                f"A trajectory is made of a TensorDict of rows, not of {type(data).__name__}."
            )
        self.data = data

    @property
    def length(self) -> int:
        """The number of rows."""
        return self.data.batch_size[0] if self.data.batch_size else 1

    @property
    def total_reward(self) -> torch.Tensor:
        """The sum of all rewards, added in float64, in their type; of halves in float32."""
        reward: torch.Tensor = self._entry("reward")
        if not reward.is_floating_point():
            return reward.sum()
        return reward.sum(dtype=torch.float64).to(torch.promote_types(reward.dtype, torch.float32))

    @property
    def batch_size(self) -> torch.Size:
        """``[T]``."""
        size: torch.Size = self.data.batch_size
        return size

    def keys(self, include_nested: bool = False, leaves_only: bool = False) -> Any:
        """Return the keys of the rows, as ``data.keys`` does."""
        return self.data.keys(include_nested, leaves_only)

    def get(self, key: NestedKey, default: Any = None) -> Any:
        """Return an entry, at the root or else below ``"next"``; the default for no entry."""
        entry = self.data.get(key, None)
        return self.data.get(("next", *key_of(key)), default) if entry is None else entry

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "data":  # as copying and pickling ask
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}.")
        # Where there is no reward, Python asks for total_reward here once its property failed.
        return self._entry("reward" if name == "total_reward" else name)

    def _entry(self, name: str) -> Any:
        entry = self.get(name)
        if entry is None:
            refuse_missing_reward(("next", name), "this call", "the trajectory")
            names = sorted(show_key(key_of(key)) for key in self.data.keys(True, leaves_only=True))
            raise AttributeError(
                f"The rows of this trajectory have neither {name} nor next.{name}. They have "
                f"{', '.join(names)}."
            )
        return entry

    def __getitem__(self, index: Any) -> Any:
        """Return an entry by its key, or some of the rows as a trajectory."""
        part = self.data[index]
        is_key = isinstance(index, str) or (
            isinstance(index, tuple) and all(isinstance(name, str) for name in index)
        )
        return part if is_key else Trajectory(part)

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        return f"Trajectory(length={self.length}, keys={sorted(map(str, self.keys()))})"


class RowEntries(Protocol):
    """Rows whose entries are read one by one: a storage, or a rollout."""

    def has(self, key: Key) -> bool:
        """Return whether rows have an entry."""

    def entry(self, key: Key, rows: torch.Tensor) -> torch.Tensor | None:
        """Return an entry of the rows int64 ``[B]``, or None where there is no such entry."""


class RowLeaves:
    """Those of rows that are read now, a few megabytes at a time."""

    # rows: which ones, trajectory after trajectory, int64 `[N]`.
    # lengths: of the trajectories, int64 `[K]`.

    def __init__(
        self,
        entries: RowEntries,
        rows: torch.Tensor,
        lengths: np.ndarray,
        trajectory: Trajectory | None = None,
    ) -> None:
        self.lengths, self.trajectory = lengths, trajectory
        self.has = entries.has
        self._entries = entries
        self._rows = rows
        self._offsets = np.concatenate(([0], self.lengths.cumsum()))

    def reduce(self, key: Key, reduction: Reduction) -> np.ndarray:
        """Return one value of each trajectory, made of a leaf's rows in it, ``[K, ...]``."""
        if reduction in ("first", "last"):
            places = self._offsets[:-1] if reduction == "first" else self._offsets[1:] - 1
            return self._read(key, self._rows[torch.from_numpy(places)])
        blocks = self.blocks(key)
        block = next(blocks)
        dtype = reduced_dtype(reduction, block.dtype)
        reduced = np.empty((len(self.lengths), *block.shape[1:]), dtype)
        reduce_blocks(reduction, itertools.chain([block], blocks), self._offsets, reduced)
        return reduced

    def blocks(self, key: Key) -> Iterator[np.ndarray]:
        """Yield the rows of a leaf in blocks ``[n, ...]``, trajectory after trajectory."""
        row_bytes = self._read(key, self._rows[:1]).nbytes
        for rows in self._rows.split(min(BLOCK_ROWS, rows_per_block(row_bytes))):
            yield self._read(key, rows)

    def _read(self, key: Key, rows: torch.Tensor) -> np.ndarray:
        """Return a leaf of some rows ``[n, ...]``."""
        leaf = self._entries.entry(key, rows)
        if not isinstance(leaf, torch.Tensor) or leaf.is_complex():
            kind = f"of {leaf.dtype}" if isinstance(leaf, torch.Tensor) else "not a tensor of rows"
            raise UsageError(f"{show_key(key)} is {kind}; a condition reads real numbers.")
        as_float = str(leaf.dtype).removeprefix("torch.") in AS_FLOAT32
        return (leaf.float() if as_float else leaf).cpu().numpy()


TrajectoryLeaves = Trajectories | RowLeaves
"""The numbers of K trajectories: what a table has reduced already is not read again."""


def whole_trajectory(leaves: TrajectoryLeaves) -> Trajectory | None:
    """Return the only trajectory, where it was read whole."""
    return leaves.trajectory if isinstance(leaves, RowLeaves) else None


class Rollout:
    """The entries of a TensorDict of rows."""

    # data: `[N]`.

    def __init__(self, data: TensorDictBase) -> None:
        self._data = data
        self._keys = {
            (key,) if isinstance(key, str) else key for key in data.keys(True, leaves_only=True)
        }

    def has(self, key: Key) -> bool:
        """Return whether rows have an entry that is a tensor."""
        return key in self._keys

    def entry(self, key: Key, rows: torch.Tensor) -> torch.Tensor | None:
        """Return an entry of the rows int64 ``[B]``, or None where there is no such entry."""
        return take(self._data.get(key), rows) if self.has(key) else None

    def scalar_column(self, key: Key) -> torch.Tensor:
        """Return an entry with one number a row, ``[N, 1]``."""
        column: torch.Tensor = self._data.get(key)
        if column.numel() != len(self._data):
            raise UsageError(f"{show_key(key)} is not one number a row, which trajectories need.")
        return column.reshape(-1, 1)


def leaves_of(trajectory: Trajectory) -> RowLeaves:
    """Return what a condition reads of one trajectory."""
    if not isinstance(trajectory, Trajectory):
        raise UsageError(
            f"A condition is called with a Trajectory, not with {type(trajectory).__name__}. "
            "iter_trajectories(rows) gives those of a TensorDict."
        )
    rows, lengths = torch.arange(trajectory.length), np.array([trajectory.length])
    return RowLeaves(Rollout(trajectory.data), rows, lengths, trajectory)


def find_leaf(leaves: TrajectoryLeaves, key: Key) -> Key:
    """Return the leaf that a name means: that of the root, or else that below ``"next"``."""
    names = (key, ("next", *key))
    for name in names:
        if leaves.has(name):
            return name
    for name in names:
        refuse_missing_reward(name, "the condition", "the trajectory")
    raise UsageError(
        f"Rows have neither {show_key(names[0])} nor {show_key(names[1])} that a condition could "
        "read. A nested entry is named by all its names: traj['next', 'reward'], or next.reward in "
        "a text."
    )


NUMBERING: tuple[Key, ...] = (EPISODE, ("collector", "traj_ids"))
"""Leaves that number trajectories, and so differ between equal ones."""


def leaves_below(dataset: Dataset, keys: Iterable[NestedKey] | None) -> list[Key]:
    """Return the leaves of numbers at or below some keys; all but those that number by default."""
    known = [column.key for column in dataset.manifest.columns]
    if keys is None:
        return [key for key in known if key not in NUMBERING]
    leaves: list[Key] = []
    for key in (key_in(known, key_of(name)) for name in keys):
        below = [name for name in known if name[: len(key)] == key]
        if not below:
            raise UsageError(
                f"{dataset.id} has no column of numbers {show_key(key)}. It has: "
                f"{', '.join(map(show_key, known))}."
            )
        leaves += below
    return sorted(set(leaves))
