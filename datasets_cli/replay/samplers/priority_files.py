"""Priorities on disk: one file of numbers and one of settings.

    sampler_metadata.json   _alpha, _beta, _eps, _max_priority, _max_capacity, _schema_version 2
    priorities.memmap       float64, little-endian, one a row; -1 where a row has none

TorchRL 0.14 writes schema 1, or none: the transformed priorities ``(p + eps)^alpha`` of its whole
capacity, in ``sumtree.memmap``; they are read, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import StateDict

METADATA = "sampler_metadata.json"
PRIORITIES = "priorities.memmap"
SUM_TREE = "sumtree.memmap"
SCHEMA_VERSION = 2


def write_priorities(folder: Path, state: Mapping[str, Any], max_capacity: int) -> None:
    """Write the state of ``Priorities`` into a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SUM_TREE).unlink(missing_ok=True)  # of an older dump
    np.asarray(state["priorities"].cpu().numpy(), "<f8").tofile(folder / PRIORITIES)
    metadata = {f"_{name}": state[name] for name in ("alpha", "beta", "eps", "max_priority")}
    metadata |= {"_max_capacity": max_capacity, "_schema_version": SCHEMA_VERSION}
    (folder / METADATA).write_text(json.dumps(metadata), encoding="utf-8")


def read_priorities(folder: Path, max_capacity: int) -> StateDict:
    """Return the state of ``Priorities`` that a folder holds.

    Raises:
        FileNotFoundError: nothing was written there.
        UsageError: it was written with another capacity, or by another version.
    """
    if not (folder / METADATA).exists():
        raise FileNotFoundError(
            f"{folder} has no priorities ({METADATA}): nothing was dumped there, or a buffer with "
            "another kind of sampler. Load that into a buffer with a sampler of that kind."
        )
    metadata = json.loads((folder / METADATA).read_text(encoding="utf-8"))
    capacity, version = int(metadata["_max_capacity"]), metadata.get("_schema_version", 0)
    if capacity != max_capacity:
        raise UsageError(
            f"{folder} holds priorities of a sampler with a max_capacity of {capacity}; this one "
            f"has {max_capacity}. Make one with max_capacity={capacity}."
        )
    if version > SCHEMA_VERSION:
        raise UsageError(f"{folder} has schema {version}; this version reads up to 2. Upgrade.")
    state = {name: metadata[f"_{name}"] for name in ("alpha", "beta", "eps")}
    if version == SCHEMA_VERSION:
        priorities = np.fromfile(folder / PRIORITIES, "<f8")
        highest = metadata["_max_priority"]
    else:
        priorities = _from_leaves(np.fromfile(folder / SUM_TREE, "<f8"), **state)
        # Before schema 1 this could be a transformed number: pytorch/rl#3925.
        highest = priorities.max(initial=-1.0) if version == 0 else metadata["_max_priority"][0]
    return state | {"max_priority": highest, "priorities": torch.from_numpy(priorities)}


def _from_leaves(leaves: np.ndarray, alpha: float, beta: float, eps: float) -> np.ndarray:
    """Return the priorities float64 ``[n]`` whose powers are ``leaves``, up to the last known."""
    leaves = leaves[: np.flatnonzero(leaves)[-1] + 1] if leaves.any() else leaves[:0]
    # With alpha 0 every power is 1, and so is then every priority: nothing better is known.
    raw = leaves ** (1 / alpha) - eps if alpha else np.ones_like(leaves)
    return np.where(leaves > 0, raw.clip(min=0), -1.0)
