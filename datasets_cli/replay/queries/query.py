"""Queries: the trajectories of a buffer or of a rollout that match a condition."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
from tensordict import TensorDictBase

from datasets_cli.errors import UnknownKey, WrongRows, wrong_value
from datasets_cli.replay.arguments import NestedKey, Rows, key_of
from datasets_cli.replay.queries.conditions import (
    FunctionTerm,
    Term,
    TrajectoryPredicate,
    holds,
    reads_trajectories,
)
from datasets_cli.replay.queries.expressions import Expression
from datasets_cli.replay.queries.trajectory import (
    Rollout,
    RowLeaves,
    Trajectory,
    TrajectoryLeaves,
)
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.trajectories.bounds import (
    FROM_STORAGE,
    RowEntries,
    TrajectoryIndex,
    TrajectoryKeys,
    find_trajectories,
)
from datasets_cli.replay.trajectories.trajectory_table import Trajectories
from datasets_cli.schema.columns import DONE, EPISODE, TERMINATED, TRUNCATED, Key, show_key

NUMBER_KEYS: tuple[Key, ...] = (("collector", "traj_ids"), ("traj_ids",), EPISODE)
END_KEYS = (DONE, TRUNCATED, TERMINATED)

Predicate = TrajectoryPredicate | Callable[[Trajectory], object]


def query(
    storage: Storage,
    predicate: Predicate | None,
    trajectory_key: NestedKey | None,
    *,
    transform: Callable[[Rows], Rows] | None = None,
    table: Trajectories | None = None,
) -> list[Trajectory]:
    """Return the trajectories that match a condition, the oldest first.

    With several environments side by side, they are sorted by environment first.
    """
    tree = _tree(predicate)
    if not len(storage):
        return []
    _check_rows(storage)
    index = storage.trajectories(_keys(storage, trajectory_key, has_table=not storage.is_writable))
    if tree is None:
        return [*_read(storage, index, transform)]
    if transform or reads_trajectories(tree):
        # One at a time: only selected trajectories stay in memory.
        each = (_at(index, slice(place, place + 1)) for place in range(len(index.lengths)))
        read = (trajectory for one in each for trajectory in _read(storage, one, transform))
        return [trajectory for trajectory in read if holds(tree, trajectory)]
    leaves: TrajectoryLeaves = table or RowLeaves(
        storage, index.every_row()[2], index.lengths.numpy()
    )
    return [*_read(storage, _at(index, torch.from_numpy(np.array(tree.values(leaves)))), transform)]


def iter_trajectories(
    data: TensorDictBase, trajectory_key: NestedKey | None = None
) -> Iterator[Trajectory]:
    """Return an iterator over the trajectories of a rollout, in their order: views of its rows.

    A trajectory ends where the number at ``trajectory_key`` changes. By default this is the first
    existing key of ``("collector", "traj_ids")``, ``"traj_ids"`` and ``"episode"``. Rows without
    numbers are separated by the flags ``"done"``, ``"truncated"`` and ``"terminated"`` below
    ``"next"``; a trajectory without an end is then joined to the next one. The last trajectory ends
    with the rows.

    Args:
        data: rows ``[N]``, trajectory by trajectory.
        trajectory_key: the key of the numbers of trajectories.

    Raises:
        UsageError: ``data`` is not a TensorDict ``[N]``.
        UnknownKey: no column separates the trajectories.
    """
    if not isinstance(data, TensorDictBase) or len(data.batch_size) != 1:
        kind = list(data.batch_size) if isinstance(data, TensorDictBase) else type(data)
        raise wrong_value(
            "data",
            "a TensorDict of rows [N]",
            kind,
            "Apply reshape(-1) to rollouts [B, T], whose last steps must end trajectories.",
        )
    if not len(data):
        return iter(())
    rollout = Rollout(data)
    index = find_trajectories(rollout, _keys(rollout, trajectory_key), 0)
    ends = np.concatenate(([0], index.lengths.cumsum(0))).tolist()
    return (Trajectory(data[start:stop]) for start, stop in itertools.pairwise(ends))


def filter_trajectories(
    data: TensorDictBase,
    predicate: Predicate | None = None,
    *,
    trajectory_key: NestedKey | None = None,
) -> list[Trajectory]:
    """Return the trajectories of a rollout that match a condition; see ``iter_trajectories``.

    Args:
        data: rows ``[N]``.
        predicate: a condition of ``traj``, or a function of a trajectory; None selects all.
        trajectory_key: the key of the numbers of trajectories.

    Raises:
        UsageError: as ``iter_trajectories``, and as ``ReplayBuffer.query``.
    """
    tree = _tree(predicate)
    each = iter_trajectories(data, trajectory_key)
    return [one for one in each if tree is None or holds(tree, one)]


def _tree(predicate: Predicate | None) -> Term | None:
    """Return the tree of a condition or of a function; None selects all trajectories."""
    if isinstance(predicate, Expression):
        raise predicate.not_a_condition
    if predicate is None or isinstance(predicate, TrajectoryPredicate):
        return predicate if predicate is None else predicate.tree
    if not callable(predicate):
        raise wrong_value(
            "predicate",
            "a condition such as traj.length >= 50, or a function of a trajectory",
            predicate,
        )
    return FunctionTerm(predicate)


def _check_rows(storage: Storage) -> None:
    """Raise ``WrongRows`` unless rows are TensorDicts."""
    if not storage.is_tensordict and not isinstance(row := storage.item(0), TensorDictBase):
        found = type(row).__name__
        raise WrongRows(
            f"Trajectories need rows that are TensorDicts; the rows of this storage are {found}.",
            expected="TensorDict",
            found=found,
        )


def _keys(
    rows: RowEntries, trajectory_key: NestedKey | None, *, has_table: bool = False
) -> TrajectoryKeys:
    """Return the columns that separate trajectories; see ``iter_trajectories``."""
    if trajectory_key is not None:
        if not rows.has(key := key_of(trajectory_key)):
            raise UnknownKey(
                f"The rows have no column {show_key(key)} with the numbers of trajectories.",
                argument="trajectory_key",
                key=key,
            )
        return TrajectoryKeys(number=key)
    if has_table:
        return FROM_STORAGE
    if number := next((key for key in NUMBER_KEYS if rows.has(key)), None):
        return TrajectoryKeys(number=number)
    if not any(map(rows.has, END_KEYS)):
        names = ", ".join(map(show_key, (*NUMBER_KEYS, *END_KEYS)))
        raise UnknownKey(
            f"Trajectories need one of the columns {names}, and the rows do not have any.",
            argument="trajectory_key",
            expected=names,
            advice="Pass trajectory_key, a column of numbers that change between trajectories.",
        )
    return TrajectoryKeys(ends=END_KEYS)


def _at(index: TrajectoryIndex, places: slice | torch.Tensor) -> TrajectoryIndex:
    return replace(index, starts=index.starts[places], lengths=index.lengths[places])


def _read(
    storage: Storage, index: TrajectoryIndex, transform: Callable[[Rows], Rows] | None
) -> Iterator[Trajectory]:
    """Yield trajectories, whose rows are read in one gather."""
    if not len(index.lengths):
        return
    batch = storage.get(index.every_row()[2])
    for rows in batch.split(index.lengths.tolist()):
        yield Trajectory(rows if transform is None else transform(rows))
