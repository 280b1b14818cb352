"""A dataset as the numpy arrays that D4RL's users know."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.storages.dataset import DatasetStorage
from datasets_cli.store.schema.bits import type_name
from datasets_cli.store.schema.columns import show_key

if TYPE_CHECKING:
    import numpy as np

COLUMNS = {
    "observations": ("observation",),
    "actions": ("action",),
    "next_observations": ("next", "observation"),
    "rewards": ("next", "reward"),
    "terminals": ("next", "terminated"),
}


def qlearning_columns(storage: DatasetStorage) -> dict[str, np.ndarray]:
    """Return the columns of a dataset's storage; see ``ExperienceReplay.qlearning_dataset``."""
    return {name: _array(storage, name) for name in COLUMNS}


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
    if name in ("rewards", "terminals"):
        column = column[:, 0]
    if column.is_complex() or type_name(column.dtype) == "float4_e2m1fn_x2":
        raise UsageError(
            f"{storage.dataset.manifest.id}: {show_key(key)} is {column.dtype}; a Q-learning "
            "dataset needs numbers that float32 can have. Convert them with preprocess() first."
        )
    return (column if column.dtype == torch.bool else column.float()).numpy()
