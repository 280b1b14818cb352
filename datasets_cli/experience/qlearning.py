"""A dataset as the numpy arrays that D4RL's users know.

Which rows ``d4rl.qlearning_dataset`` makes of a file is found in the dataset made of that file.
D4RL goes through the steps of the file in their order. It leaves out the last one and each at a
time limit, and the successor is the observation of the next step, also after a terminal:

    step          0    1    2T   3    4    5|   6    7        T terminal, | time limit, 7 the last
    row of D4RL   0→1  1→2  2→3  3→4  4→5       6→7
    row of ours   0→1  1→2  2→-  3→4  4→5       6→7           - zeros

Where the file records successors, every step is a row of ours. Where it does not, a step that ends
a trajectory without being a terminal (5, 7) is not a row; the row before it is marked truncated.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from datasets_cli.errors import UsageError
from datasets_cli.quantities import counted
from datasets_cli.replay.storages.dataset import DatasetStorage
from datasets_cli.schema.bits import type_name
from datasets_cli.schema.columns import show_key
from datasets_cli.store.manifest import Manifest

Arrays = dict[str, np.ndarray]

COLUMNS = {
    "observations": ("observation",),
    "actions": ("action",),
    "next_observations": ("next", "observation"),
    "rewards": ("next", "reward"),
    "terminals": ("next", "terminated"),
    "timeouts": ("next", "truncated"),
}
NO_ROW = -1
SCALARS = ("rewards", "terminals", "timeouts")


def qlearning_dataset(
    storage: DatasetStorage, *, like: Literal["d4rl"] | None = None
) -> dict[str, np.ndarray]:
    """Return the whole dataset as the numpy dict that D4RL's users know.

    Args:
        storage: the rows of the dataset.
        like: None for every row; ``"d4rl"`` for the rows of ``d4rl.qlearning_dataset``, value
            for value, of a dataset of D4RL.

    Returns:
        ``observations``, ``actions``, ``next_observations`` float32 ``[N, ...]`` (float64 and
        integers are cast, as ``d4rl.qlearning_dataset`` does), ``rewards`` float32 ``[N]``,
        ``terminals`` bool ``[N]`` and ``timeouts`` bool ``[N]``, the ends by a time limit; no
        text. Unlike there, rows cut off by a time limit stay where their successor is real,
        and no successor belongs to another trajectory: it is zeros after a terminal where the
        file has none. With ``like="d4rl"`` it is as there, and ``timeouts`` are the last rows
        before what D4RL leaves out: steps at a time limit, and the last one.

    Raises:
        UsageError: the observation is not one tensor, the copy does not fit into memory, or
            the dataset does not have what D4RL's rows are made of: it is of another family or
            was preprocessed, or its file has no timeouts and trajectories up to the time limit.
    """
    if like not in (None, "d4rl"):
        raise UsageError(f"like must be 'd4rl' or None, not {like!r}.")
    storage.dataset.manifest.check_rewards("qlearning_dataset()")
    columns = {name: _array(storage, name) for name in COLUMNS}
    return columns if like is None else _like_d4rl(storage, columns)


def _like_d4rl(storage: DatasetStorage, columns: Arrays) -> Arrays:
    manifest = storage.dataset.manifest
    chosen = d4rl_rows(manifest, columns["terminals"], columns["timeouts"])
    kept = {name: column[chosen.rows] for name, column in columns.items()}
    kept["timeouts"] = chosen.timeouts
    elsewhere = chosen.following != NO_ROW
    successors = columns["observations"][chosen.following[elsewhere]]
    kept["next_observations"][elsewhere] = successors
    return kept


def _array(storage: DatasetStorage, name: str) -> np.ndarray:
    key = COLUMNS[name]
    columns = storage.dataset.columns(key)  # of numbers; text is left out
    column = columns.get(key)
    if column is None:
        parts = ", ".join(show_key(found[len(key) :]) for found in columns)
        raise UsageError(
            f"{storage.dataset.id}: {show_key(key)} is a group of tensors ({parts}); a "
            "Q-learning dataset needs one. Join them with preprocess() first."
        )
    if name in SCALARS:
        column = column[:, 0]
    if column.is_complex() or type_name(column.dtype) == "float4_e2m1fn_x2":
        raise UsageError(
            f"{storage.dataset.id}: {show_key(key)} is {column.dtype}; a Q-learning "
            "dataset needs numbers that float32 can have. Convert them with preprocess() first."
        )
    return (column if column.dtype == torch.bool else column.float()).numpy()


@dataclass(frozen=True)
class D4RLRows:
    """The rows that D4RL has."""

    # rows: int64 `[M]`, rows of the dataset in their order.
    # following: int64 `[M]`, the row whose observation is the successor of each, or `NO_ROW` where
    # that is the `next.observation` of the row itself.
    # timeouts: bool `[M]`, whether D4RL leaves out the step after each, which is no terminal.

    rows: np.ndarray
    following: np.ndarray
    timeouts: np.ndarray


@dataclass(frozen=True)
class FileSteps:
    """The steps of a file, as far as its dataset tells."""

    # rows: int64 `[S]`, the row of each step, or `NO_ROW`.
    # terminals: bool `[S]`.
    # timeouts: bool `[S]`, True for each step that is not a row.

    rows: np.ndarray
    terminals: np.ndarray
    timeouts: np.ndarray


def d4rl_rows(manifest: Manifest, terminals: np.ndarray, timeouts: np.ndarray) -> D4RLRows:
    """Return the rows that D4RL makes of the file that a dataset was made of."""
    # A `UserWarning` says where the successor of a terminal, which no method uses, may be another.
    # terminals: `next.terminated` of its rows, bool `[N]`.
    # timeouts: `next.truncated` of its rows, bool `[N]`.
    if manifest.recipe.get("family") != "d4rl" or manifest.parent is not None:
        raise UsageError(
            f"like='d4rl' gives the rows that d4rl.qlearning_dataset makes of a file of D4RL; "
            f"{manifest.id} is not such a file as it was published. qlearning_dataset() without "
            "like takes every dataset."
        )
    is_counted = "trajectory_ends" in manifest.metadata  # the file has no timeouts
    skipped = int(manifest.successors.get("skipped_trajectories", 0))
    # With a limit of more than one step only the last step can be a trajectory without a row.
    has_one_more = skipped > 0 and is_counted
    steps = _file_steps(manifest, terminals, timeouts, has_one_more)
    if skipped and not is_counted:
        _check_skipped(manifest.id, skipped, terminals & ~timeouts)
    limits = steps.timeouts
    if is_counted:
        limits = counted_limits(steps.terminals, manifest.metadata.get("max_episode_steps"))
    kept = np.flatnonzero(~limits[:-1])
    rows, following = steps.rows[kept], steps.rows[kept + 1]
    lost = (rows == NO_ROW) | (steps.terminals[kept] & (following == NO_ROW))
    if lost.any():
        raise UsageError(
            f"{manifest.id}: like='d4rl' needs step {kept[lost][0]} of the file and its successor, "
            "which the dataset does not have: the file has no timeouts, and d4rl.qlearning_dataset "
            "counts one step less up to the time limit after each terminal. Use "
            "qlearning_dataset() without like; its trajectories end at "
            f"{manifest.metadata['trajectory_ends']}."
        )
    is_before_dropped = np.append(limits[:-1], True)[kept + 1]
    return D4RLRows(rows, following, is_before_dropped & ~steps.terminals[kept])


def _file_steps(
    manifest: Manifest, terminals: np.ndarray, timeouts: np.ndarray, has_one_more: bool
) -> FileSteps:
    """Return the steps of a file; ``has_one_more`` after them is not a row."""
    num_rows = len(terminals)
    if manifest.successors.get("rule") == "recorded":
        return FileSteps(np.arange(num_rows), terminals, timeouts)
    # Where a trajectory does not end by a terminal, a step that is not a row follows its last row.
    before_dropped = timeouts & ~terminals
    num_before = np.cumsum(before_dropped) - before_dropped  # dropped steps before each row
    place = np.arange(num_rows) + num_before
    num_steps = num_rows + int(before_dropped.sum()) + has_one_more
    rows = np.full(num_steps, NO_ROW)
    rows[place] = np.arange(num_rows)
    step_terminals, step_timeouts = np.zeros(num_steps, np.bool_), np.ones(num_steps, np.bool_)
    step_terminals[place] = terminals
    step_timeouts[place] = timeouts & terminals  # a row with both flags has both in the file
    return FileSteps(rows, step_terminals, step_timeouts)


def _check_skipped(id: str, skipped: int, only_terminal: np.ndarray) -> None:
    """Check what steps of unknown places, each a whole trajectory, leave unknown: what they
    follow.
    """
    # only_terminal: rows that are terminals and not at a time limit, bool `[N]`.
    if only_terminal[-1]:
        raise UsageError(
            f"{id}: like='d4rl' cannot tell whether the last row, a terminal, is the last step of "
            "the file, which d4rl.qlearning_dataset leaves out: the dataset is "
            f"without {counted(skipped, 'trajectory')} of one step, and one may follow it. Use "
            "qlearning_dataset() without like."
        )
    if only_terminal.any():
        warnings.warn(
            f"{id}: next_observations of at most {min(skipped, int(only_terminal.sum()))} "
            "terminals differ from d4rl.qlearning_dataset's, which has the first observation of "
            "the next trajectory there: the dataset is without "
            f"{counted(skipped, 'trajectory')} of one step. No method uses the successor of a "
            "terminal; all other values are D4RL's.",
            stacklevel=6,  # the caller of ExperienceReplay.qlearning_dataset
        )


def counted_limits(terminals: np.ndarray, max_episode_steps: int | None) -> np.ndarray:
    """Return which steps D4RL takes for time limits where a file has no timeouts, bool ``[S]``.

        limit 4      0  1  2  3| 0  1  2T 1  2  3| 0  1 ...

    It counts the step after a terminal as 1 and all others from 0, so that a limit comes one step
    early after a terminal.
    """
    limits = np.zeros(len(terminals), np.bool_)
    if max_episode_steps is None:
        return limits
    first, count = 0, 0
    for last in [*np.flatnonzero(terminals).tolist(), len(terminals) - 1]:
        limits[first + max_episode_steps - 1 - count : last + 1 : max_episode_steps] = True
        # A terminal that is at a limit, too, is a limit to D4RL.
        first, count = last + 1, 0 if limits[last] else 1
    return limits
