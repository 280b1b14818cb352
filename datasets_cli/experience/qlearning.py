"""A dataset as the numpy arrays that D4RL's users know."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch

from datasets_cli.audit.d4rl_rows import NO_ROW, d4rl_rows
from datasets_cli.errors import UsageError
from datasets_cli.replay.storages.dataset import DatasetStorage
from datasets_cli.schema.bits import type_name
from datasets_cli.schema.columns import show_key

Arrays = dict[str, np.ndarray]

COLUMNS = {
    "observations": ("observation",),
    "actions": ("action",),
    "next_observations": ("next", "observation"),
    "rewards": ("next", "reward"),
    "terminals": ("next", "terminated"),
    "timeouts": ("next", "truncated"),
}
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
