"""Priorities on disk: one file of numbers and one of settings.

    sampler_metadata.json   _alpha, _beta, _eps, _max_priority, _max_capacity, _schema_version 2,
                            _num_rows, _kind
    priorities.memmap       float64, little-endian, one a row; -1 where a row has none

TorchRL 0.14 writes schema 1, or none: the transformed priorities ``(p + eps)^alpha`` of its whole
capacity, in ``sumtree.memmap``; they are read, too.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch

from datasets_cli.errors import DamagedDataset, MissingFile, UsageError
from datasets_cli.replay.arguments import StateDict
from datasets_cli.replay.storages.state_files import (
    SETTINGS_BYTES,
    open_file,
    read_state,
    whole,
    wrong,
)

METADATA = "sampler_metadata.json"
PRIORITIES = "priorities.memmap"
SUM_TREE = "sumtree.memmap"
SCHEMA_VERSION = 2


def write_priorities(folder: Path, state: StateDict, max_capacity: int) -> None:
    """Write the state of ``Priorities`` into a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SUM_TREE).unlink(missing_ok=True)  # of an older dump
    (folder / PRIORITIES).write_bytes(np.asarray(state["priorities"].cpu().numpy(), "<f8").data)
    metadata = {f"_{name}": state[name] for name in ("alpha", "beta", "eps", "max_priority")}
    metadata |= {"_max_capacity": max_capacity, "_schema_version": SCHEMA_VERSION}
    metadata |= {"_num_rows": len(state["priorities"]), "_kind": state["kind"]}
    (folder / METADATA).write_text(json.dumps(metadata), encoding="utf-8")


def read_priorities(folder: Path) -> StateDict:
    """Return the state of ``Priorities`` that a folder holds."""
    path = folder / METADATA
    if not os.path.lexists(path):
        raise MissingFile(
            f"{folder} has no priorities ({METADATA}): nothing was dumped there, or a buffer with "
            "another kind of sampler. Load that into a buffer with a sampler of that kind."
        )
    metadata = read_state(path, SETTINGS_BYTES)
    capacity = whole(metadata, "_max_capacity", path)
    version = whole({"_schema_version": 0} | metadata, "_schema_version", path)
    if version > SCHEMA_VERSION:
        raise UsageError(f"{folder} has schema {version}; this version reads up to 2. Upgrade.")
    state: StateDict = {
        name: _number(metadata, f"_{name}", path, 0) for name in ("alpha", "beta", "eps")
    }
    if version == SCHEMA_VERSION:
        num_rows = whole(metadata, "_num_rows", path, capacity)
        priorities = _numbers(folder / PRIORITIES, capacity, -1, num_rows)
        highest = _number(metadata, "_max_priority", path, -1)
    else:
        priorities = _from_leaves(_numbers(folder / SUM_TREE, capacity, 0), **state)
        # Before schema 1 this could be a transformed number: pytorch/rl#3925.
        highest = priorities.max(initial=-1.0) if version == 0 else _highest(metadata, path)
    if "_kind" in metadata:  # TorchRL writes none
        state["kind"] = metadata["_kind"]
    return state | {"max_priority": float(highest), "priorities": torch.from_numpy(priorities)}


def are_priorities(numbers: torch.Tensor, unknown: float = -1) -> bool:
    """Return whether numbers, of any shape, are finite priorities, or mark rows without one."""
    known = (numbers >= 0) | (numbers == unknown)
    return bool((known & numbers.isfinite()).all())


def _number(metadata: StateDict, name: str, path: Path, least: float) -> float:
    """Return a finite number of the settings."""
    given: Any = metadata.get(name)
    try:
        number = float(given) if type(given) in (int, float) else math.nan
    except OverflowError:
        number = math.inf
    if not least <= number < math.inf:
        raise wrong(path, name, f"a number from {least} on", given)
    return number


def _highest(metadata: StateDict, path: Path) -> float:
    """Return the highest priority of TorchRL's settings: a number and its row, or the number."""
    found = metadata.get("_max_priority")
    first = found[0] if isinstance(found, list) and found else found
    return _number({"_max_priority": first}, "_max_priority", path, -1)


def _numbers(path: Path, capacity: int, least: float, num_rows: int | None = None) -> np.ndarray:
    """Return the float64 ``[n]`` of a file, finite and from ``least`` on."""
    # They are `num_rows`, or at most `capacity` where that is not known.
    try:
        with open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            fits = size <= 8 * capacity if num_rows is None else size == 8 * num_rows
            if size % 8 or not fits:
                expected = f"at most {capacity}" if num_rows is None else f"{num_rows}"
                raise DamagedDataset(
                    f"{path} has {size} bytes; expected float64 of {expected} rows. Dump the "
                    "buffer again."
                )
            numbers = np.frombuffer(file.read(size), "<f8").astype(np.float64)
    except FileNotFoundError as error:
        raise MissingFile(f"{path} is missing: only a part of a buffer is there.") from error
    if not are_priorities(torch.from_numpy(numbers), least):
        raise DamagedDataset(
            f"{path} has numbers that are not priorities, such as NaN. Dump the buffer again."
        )
    return numbers


def _from_leaves(leaves: np.ndarray, alpha: float, beta: float, eps: float) -> np.ndarray:
    """Return the priorities float64 ``[n]`` whose powers are ``leaves``, up to the last known."""
    leaves = leaves[: np.flatnonzero(leaves)[-1] + 1] if leaves.any() else leaves[:0]
    # With alpha 0 every power is 1, and so is then every priority: nothing better is known.
    raw = leaves ** (1 / alpha) - eps if alpha else np.ones_like(leaves)
    return np.where(leaves > 0, raw.clip(min=0), -1.0)
