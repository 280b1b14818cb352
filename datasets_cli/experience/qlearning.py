"""A dataset as the numpy arrays that D4RL's users know."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch

from datasets_cli.audit.d4rl_rows import NO_ROW, d4rl_rows
from datasets_cli.errors import UsageError, WrongRows
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
        integers are cast, as by ``d4rl.qlearning_dataset``), ``rewards`` float32 ``[N]``,
        ``terminals`` bool ``[N]`` and ``timeouts`` bool ``[N]``, True at a time limit; text is
        omitted. D4RL drops rows at a time limit; here they are included if the file has their
        successor. A successor never belongs to another trajectory: after a terminal it is zeros
        if the file lacks it. With ``like="d4rl"`` rows and successors are D4RL's, and ``timeouts``
        are the last rows before the steps that D4RL drops: steps at a time limit, and the last.

    Raises:
        UsageError: the observation is not one tensor, the copy does not fit into memory, or
            D4RL's rows cannot be computed: the dataset is of another family or was preprocessed,
            or its file has trajectories up to the time limit without timeouts.
    """
    if like not in (None, "d4rl"):
        raise UsageError(
            f"like must be 'd4rl' or None, not {like!r}.",
            argument="like",
            expected=("d4rl", None),
            found=like,
        )
    storage.dataset.manifest.check_rewards("qlearning_dataset()")
    columns = {name: _array(storage, name) for name in COLUMNS}
    return columns if like is None else _like_d4rl(storage, columns)


def _like_d4rl(storage: DatasetStorage, columns: Arrays) -> Arrays:
    manifest = storage.dataset.manifest
    alone = int((storage.dataset.final.episodes < 0).sum())
    chosen = d4rl_rows(manifest, columns["terminals"], columns["timeouts"], alone)
    selected = {name: column[chosen.rows] for name, column in columns.items()}
    selected["timeouts"] = chosen.timeouts
    has_following = chosen.following != NO_ROW
    successors = columns["observations"][chosen.following[has_following]]
    selected["next_observations"][has_following] = successors
    return selected


def _array(storage: DatasetStorage, name: str) -> np.ndarray:
    key = COLUMNS[name]
    columns = storage.dataset.columns(key)  # of numbers, without text
    column = columns.get(key)
    if column is None:
        parts = [show_key(each[len(key) :]) for each in columns]
        raise WrongRows(
            f"{storage.dataset.id}: {show_key(key)} is a group of tensors ({', '.join(parts)}); a "
            "Q-learning dataset needs one tensor.",
            id=storage.dataset.id,
            key=key,
            expected="one tensor",
            found=parts,
            advice="Join them with preprocess() first.",
        )
    if name in SCALARS:
        column = column[:, 0]
    if column.is_complex() or type_name(column.dtype) == "float4_e2m1fn_x2":
        raise WrongRows(
            f"{storage.dataset.id}: {show_key(key)} is {column.dtype}, which cannot be converted "
            "to float32.",
            id=storage.dataset.id,
            key=key,
            expected="numbers that fit float32",
            found=column.dtype,
            advice="Convert them with preprocess() first.",
        )
    return (column if column.dtype == torch.bool else column.float()).numpy()
