"""The trajectories that a query returns, and the entries of rows that conditions read."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase

from datasets_cli.errors import UnknownKey, wrong_value
from datasets_cli.replay.arguments import NestedKey, key_of
from datasets_cli.replay.trajectories.bounds import RowEntries
from datasets_cli.replay.trajectories.trajectory_table import (
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
    wrong_column,
)
from datasets_cli.schema.shapes import LengthArray, RowNumbers
from datasets_cli.store.dataset import Dataset
from datasets_cli.torchrl.keywords import accepts_keywords


@accepts_keywords
class Trajectory:
    """The rows of one trajectory, in the order of time.

        found = rb.query(traj.length >= 50)[0]
        found.observation, found.reward, found["next", "observation"], found[:10]

    An attribute is the entry of that name at the root, or else below ``"next"``: a dataset's
    ``found.reward`` is ``found["next", "reward"]``. ``found[key]`` is exactly that entry, and
    ``found[rows]`` is a trajectory of some of the rows. For other operations, use the TensorDict
    ``data``.

    Args:
        data: the rows ``[T]``.

    Raises:
        UsageError: ``data`` is not a TensorDict.
    """

    def __init__(self, data: TensorDictBase) -> None:
        if not isinstance(data, TensorDictBase):
            raise wrong_value("data", "a TensorDict of rows", type(data))
        self.data = data

    @property
    def length(self) -> int:
        """The number of rows."""
        return self.data.batch_size[0] if self.data.batch_size else 1

    @property
    def total_reward(self) -> torch.Tensor:
        """The sum of all rewards, added in float64; of their dtype, or float32 for halves."""
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
        """Return an entry at the root, or else below ``"next"``, or else the default."""
        entry = self.data.get(key, None)
        return self.data.get(("next", *key_of(key)), default) if entry is None else entry

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "data":  # looked up by copy and pickle
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}.")
        # Python looks up total_reward here after its property raised: there are no rewards.
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
        """Return an entry by its key, or a trajectory of some of the rows."""
        part = self.data[index]
        is_key = isinstance(index, str) or (
            isinstance(index, tuple) and all(isinstance(name, str) for name in index)
        )
        return part if is_key else Trajectory(part)

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        return f"Trajectory(length={self.length}, keys={sorted(map(str, self.keys()))})"


class RowLeaves:
    """The leaves of K trajectories, read from rows a few megabytes at a time.

    ``rows`` are the numbers of their rows, trajectory by trajectory.
    """

    def __init__(
        self,
        entries: RowEntries,
        rows: RowNumbers,
        lengths: LengthArray,
        trajectory: Trajectory | None = None,
    ) -> None:
        self.num_transitions, self.trajectory = lengths, trajectory
        self.has = entries.has
        self._entries = entries
        self._rows = rows
        self._offsets = np.concatenate(([0], self.num_transitions.cumsum()))

    def reduce(self, key: Key, reduction: Reduction) -> np.ndarray:
        """Return a reduction of a leaf over the rows of each trajectory, ``[K, ...]``."""
        if reduction in ("first", "last"):
            # Trajectory k has the rows at offsets[k] to offsets[k + 1] - 1.
            places = self._offsets[:-1] if reduction == "first" else self._offsets[1:] - 1
            return self._read(key, self._rows[torch.from_numpy(places)])
        blocks = self.blocks(key)
        block = next(blocks)  # has the dtype and shape of the leaf
        dtype = reduced_dtype(reduction, block.dtype)
        reduced = np.empty((len(self.num_transitions), *block.shape[1:]), dtype)
        reduce_blocks(reduction, itertools.chain([block], blocks), self._offsets, reduced)
        return reduced

    def blocks(self, key: Key) -> Iterator[np.ndarray]:
        """Yield the rows of a leaf in blocks ``[n, ...]``, trajectory by trajectory."""
        row_bytes = self._read(key, self._rows[:1]).nbytes
        for rows in self._rows.split(min(BLOCK_ROWS, rows_per_block(row_bytes))):
            yield self._read(key, rows)

    def _read(self, key: Key, rows: RowNumbers) -> np.ndarray:
        """Return a leaf of some rows ``[n, ...]``."""
        leaf = self._entries.entry(key, rows)
        if not isinstance(leaf, torch.Tensor) or leaf.is_complex():
            found = str(leaf.dtype) if isinstance(leaf, torch.Tensor) else "not a tensor"
            raise wrong_column(
                key, "real numbers", found, "Give query() a function of a trajectory."
            )
        as_float = str(leaf.dtype).removeprefix("torch.") in AS_FLOAT32
        return (leaf.float() if as_float else leaf).cpu().numpy()


TrajectoryLeaves = Trajectories | RowLeaves
"""The leaves of K trajectories: of a table, which caches reductions, or of rows."""


def whole_trajectory(leaves: TrajectoryLeaves) -> Trajectory | None:
    """Return the trajectory if the leaves are those of a single one, read whole."""
    return leaves.trajectory if isinstance(leaves, RowLeaves) else None


class Rollout:
    """The entries of a TensorDict ``[N]`` of rows."""

    def __init__(self, data: TensorDictBase) -> None:
        self._data = data
        self._keys = {
            (key,) if isinstance(key, str) else key for key in data.keys(True, leaves_only=True)
        }

    def has(self, key: Key) -> bool:
        """Return whether rows have a tensor of this key."""
        return key in self._keys

    def entry(self, key: Key, rows: RowNumbers) -> torch.Tensor | None:
        """Return an entry of some rows ``[B, ...]``, or None if rows do not have it."""
        return take(self._data.get(key), rows) if self.has(key) else None

    def scalar_column(self, key: Key) -> torch.Tensor:
        """Return an entry of one number per row, ``[N, 1]``."""
        column: torch.Tensor = self._data.get(key)
        if column.numel() != len(self._data):
            raise wrong_column(key, "one number per row", list(column.shape[1:]))
        return column.reshape(-1, 1)


def leaves_of(trajectory: Trajectory) -> RowLeaves:
    """Return the leaves of one trajectory."""
    if not isinstance(trajectory, Trajectory):
        raise wrong_value(
            "trajectory",
            "a Trajectory",
            type(trajectory),
            "Call the condition with each of iter_trajectories(rows).",
        )
    rows, lengths = torch.arange(trajectory.length), np.array([trajectory.length])
    return RowLeaves(Rollout(trajectory.data), rows, lengths, trajectory)


def find_leaf(leaves: TrajectoryLeaves, key: Key) -> Key:
    """Return the key of a leaf: ``key`` at the root, or else below ``"next"``."""
    names = (key, ("next", *key))
    for name in names:
        if leaves.has(name):
            return name
    for name in names:
        refuse_missing_reward(name, "the condition", "the trajectory")
    raise UnknownKey(
        f"Rows have neither {show_key(names[0])} nor {show_key(names[1])} as a leaf that a "
        "condition can read.",
        key=key,
        expected=[show_key(name) for name in names],
        advice="Write all names of a nested entry: traj['next', 'reward'], or next.reward in a "
        "text.",
    )


NUMBERING: tuple[Key, ...] = (EPISODE, ("collector", "traj_ids"))
"""Leaves with the numbers of trajectories, which differ between equal trajectories."""


def leaves_below(dataset: Dataset, keys: Iterable[NestedKey] | None) -> list[Key]:
    """Return the leaves at or below some keys; by default all but the numbers of trajectories."""
    known = [column.key for column in dataset.manifest.columns]
    if keys is None:
        return [key for key in known if key not in NUMBERING]
    leaves: list[Key] = []
    for key in (key_in(known, key_of(name)) for name in keys):
        below = [name for name in known if name[: len(key)] == key]
        if not below:
            expected = [show_key(name) for name in known]
            raise UnknownKey(
                f"{dataset.id} has no column of numbers {show_key(key)}. It has: "
                f"{', '.join(expected)}.",
                id=dataset.id,
                key=key,
                expected=expected,
            )
        leaves += below
    return sorted(set(leaves))
