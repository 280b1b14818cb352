"""A dataset as the numpy arrays that D4RL's users know."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch

from datasets_cli.errors import Unsupported, WrongRows, wrong_value
from datasets_cli.experience.in_memory import recorded_arrays
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
        are the last rows before the steps that D4RL drops: those at a time limit, and the last.

    Raises:
        UsageError: the observation is not one tensor, the copy does not fit into memory, or
            ``like="d4rl"`` and the dataset is of another family or was preprocessed.
    """
    if like not in (None, "d4rl"):
        raise wrong_value("like", ("d4rl", None), like)
    storage.dataset.manifest.check_rewards("qlearning_dataset()")
    if like is not None:
        return _like_d4rl(storage)
    return {name: _array(storage, name) for name in COLUMNS}


def _like_d4rl(storage: DatasetStorage) -> Arrays:
    """Return the rows of D4RL's loop over the steps of its file, in the order of the file."""
    manifest = storage.dataset.manifest
    if manifest.recipe.get("family") != "d4rl" or manifest.parent is not None:
        raise Unsupported(
            f"like='d4rl' needs a published file of D4RL; {manifest.id} is not one.",
            argument="like",
            id=manifest.id,
            advice="Call qlearning_dataset() without like.",
        )
    # D4RL leaves out the last step and each step at a time limit. The successor of a step is the
    # observation of the next step, also after a terminal.
    file = recorded_arrays(storage, frozenset(COLUMNS) - {"next_observations"})
    terminals = file["terminals"].reshape(-1).astype(np.bool_)
    limits = file.get("timeouts")
    if limits is None:
        limits = counted_limits(terminals, manifest.metadata.get("max_episode_steps"))
    limits = np.append(limits.reshape(-1)[:-1].astype(np.bool_), True)
    kept = np.flatnonzero(~limits)
    return {
        "observations": file["observations"][kept].astype(np.float32),
        "actions": file["actions"][kept].astype(np.float32),
        "next_observations": file["observations"][kept + 1].astype(np.float32),
        "rewards": file["rewards"][kept].astype(np.float32).reshape(-1),
        "terminals": terminals[kept],
        "timeouts": limits[kept + 1] & ~terminals[kept],
    }


def counted_limits(terminals: np.ndarray, max_episode_steps: int | None) -> np.ndarray:
    """Return which steps D4RL takes for time limits if a file has no timeouts, bool ``[S]``.

        limit 4      0  1  2  3| 0  1  2T 1  2  3| 0  1 ...

    It counts the step after a terminal as 1 and all others from 0, so that a limit comes one step
    early after a terminal.
    """
    limits, count = np.zeros(len(terminals), np.bool_), 0
    for step, is_terminal in enumerate(terminals.tolist()):
        limits[step] = count + 1 == max_episode_steps
        # A terminal that is at a limit, too, is a limit to D4RL.
        count = 0 if limits[step] else 1 if is_terminal else count + 1
    return limits


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
