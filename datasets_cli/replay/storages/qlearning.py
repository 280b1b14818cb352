"""A dataset as the numpy arrays that D4RL's users know."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.storages.d4rl_rows import NO_ROW, d4rl_rows
from datasets_cli.replay.storages.dataset import DatasetStorage
from datasets_cli.schema.bits import type_name
from datasets_cli.schema.columns import show_key

Columns = dict[str, np.ndarray]

COLUMNS = {
    "observations": ("observation",),
    "actions": ("action",),
    "next_observations": ("next", "observation"),
    "rewards": ("next", "reward"),
    "terminals": ("next", "terminated"),
    "timeouts": ("next", "truncated"),
}
SCALARS = ("rewards", "terminals", "timeouts")


def qlearning_columns(storage: DatasetStorage, like: Literal["d4rl"] | None = None) -> Columns:
    """Return the columns of a dataset's storage; see ``ExperienceReplay.qlearning_dataset``."""
    if like not in (None, "d4rl"):
        raise UsageError(f"like must be 'd4rl' or None, not {like!r}.")
    columns = {name: _array(storage, name) for name in COLUMNS}
    return columns if like is None else _like_d4rl(storage, columns)


def _like_d4rl(storage: DatasetStorage, columns: Columns) -> Columns:
    timeouts = columns.pop("timeouts")  # D4RL leaves those rows and the column out
    found = d4rl_rows(storage.dataset.manifest, columns["terminals"], timeouts)
    kept = {name: column[found.rows] for name, column in columns.items()}
    elsewhere = found.following != NO_ROW
    successors = columns["observations"][found.following[elsewhere]]
    kept["next_observations"][elsewhere] = successors
    return kept


def _array(storage: DatasetStorage, name: str) -> np.ndarray:
    key = COLUMNS[name]
    columns = storage.dataset.columns(key)  # of numbers; text is left out
    column = columns.get(key)
    if column is None:
        parts = ", ".join(show_key(found[len(key) :]) for found in columns)
        raise UsageError(
            f"{storage.dataset.manifest.id}: {show_key(key)} is a group of tensors ({parts}); a "
            "Q-learning dataset needs one. Join them with preprocess() first."
        )
    if name in SCALARS:
        column = column[:, 0]
    if column.is_complex() or type_name(column.dtype) == "float4_e2m1fn_x2":
        raise UsageError(
            f"{storage.dataset.manifest.id}: {show_key(key)} is {column.dtype}; a Q-learning "
            "dataset needs numbers that float32 can have. Convert them with preprocess() first."
        )
    return (column if column.dtype == torch.bool else column.float()).numpy()
