"""Reading D4RL's HDF5 files: one endless sequence of rows each.

Facts of the files: the generation scripts and loader of Farama-Foundation/D4RL, and the shapes that
tensorflow/datasets recorded.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from math import inf, isfinite
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from datasets_cli.formats.hdf5 import open_hdf5, read_rows, read_scalar
from datasets_cli.formats.limits import beyond, check_limit, limit
from datasets_cli.recipe import TRAJECTORY_END, Block, Description, Key, Source, SourceError

from .traps import STATE_AFTER_THE_STEP, has_state_after_the_step

KEYS: dict[str, Key] = {
    "observations": ("observation",),
    "actions": ("action",),
    "rewards": ("next", "reward"),
    "terminals": ("next", "terminated"),
    "timeouts": ("next", "truncated"),
    "next_observations": ("next", "observation"),
}
REQUIRED = ("observations", "actions", "rewards", "terminals")
ALIGNED = (*REQUIRED, "timeouts")
"""The columns of every row. A file in which they differ in length is rejected."""


def describe(source: Source) -> Description:
    """Return the reference scores, the file's metadata scalars, and notes for the user."""
    assert source.entry is not None
    metadata = dict(source.entry.details)
    notes = []
    with open_hdf5(*source.files.values()) as file:
        rows, dropped = _row_datasets(file)
        if dropped:
            listed = (f"{path} {list(item.shape)} {item.dtype}" for path, item in dropped.items())
            notes.append(
                "left out, because they do not contain numbers or text for each of the "
                f"{len(rows['observations']):,} steps: {', '.join(listed)}"
            )
        dtypes = {path: item.dtype.name for path, item in rows.items()}
        scalars, weights = _split_metadata(file)
    if scalars:
        metadata["file_metadata"] = scalars
    if texts := [".".join(_key(path)) for path, item in rows.items() if _is_text(item)]:
        notes.append(f"kept as text; batches include it with text=True: {', '.join(texts)}")
    if dropped or weights:
        metadata["dropped_fields"] = sorted([*dropped, *weights])
    if "timeouts" not in rows:
        steps = source.entry.details["max_episode_steps"]
        metadata["trajectory_ends"] = f"terminals and every {steps} steps" if steps else "terminals"
        notes.append(f"the file has no timeouts; trajectories end at {metadata['trajectory_ends']}")
    unknown = [path for path in rows if path not in KEYS and path.split("/")[0] != "infos"]
    if unknown:
        notes.append(f"fields that D4RL does not document are kept under info: {unknown}")
    traps = list(metadata.get("known_traps", ()))
    if has_state_after_the_step(source.name, dtypes.get("infos/qpos")):
        traps.append(STATE_AFTER_THE_STEP)
    if traps:
        metadata["known_traps"] = traps
    names = {key: path for path, key in KEYS.items()} | {_key(path): path for path in rows}
    return Description(metadata, tuple(notes), names=names)


def blocks(source: Source) -> Iterator[Block]:
    """Yield the file's rows in order."""
    assert source.entry is not None
    with open_hdf5(*source.files.values()) as file:
        rows, _ = _row_datasets(file)
        limit = source.entry.details["max_episode_steps"] if "timeouts" not in rows else None
        age = 0
        for block in read_rows({_key(path): item for path, item in rows.items()}):
            if limit:
                terminated = np.asarray(block["next", "terminated"]).reshape(-1) != 0
                block[TRAJECTORY_END], age = _time_limits(terminated, age, limit)
            yield Block(block, total_rows=len(rows["observations"]))


def _row_datasets(file: h5py.File) -> tuple[dict[str, h5py.Dataset], dict[str, h5py.Dataset]]:
    """Return the datasets with one entry per step, by path, and the other datasets."""
    arrays = _arrays(file)
    datasets = {path: item for path, item in arrays.items() if not path.startswith("metadata/")}
    first, *rest = textwrap.wrap(", ".join(datasets), 1_000) or ["nothing"]
    filename, found = Path(file.filename).name, f"{first} ..." if rest else first
    if missing := [path for path in REQUIRED if path not in datasets]:
        raise SourceError(
            f"{filename} has no {', '.join(missing)}; found {found}. "
            "A D4RL file has observations, actions, rewards and terminals.",
            path=filename,
            key=missing[0],
            expected=list(REQUIRED),
            found=found,
        )
    if "episode_terminals" in datasets:
        raise SourceError(
            f"{filename} has episode_terminals: it is a d3rlpy file, in which terminals have "
            f"another meaning. Expected D4RL's keys, found {found}.",
            path=filename,
            key="episode_terminals",
            found=found,
        )
    lengths = {path: datasets[path].shape[:1] for path in ALIGNED if path in datasets}
    length = lengths["observations"]
    if set(lengths.values()) != {length} or not length:
        raise SourceError(
            f"{filename} is ragged: expected one entry per step in {', '.join(lengths)}, found "
            + ", ".join(f"{path} {list(shape)}" for path, shape in lengths.items())
            + ". The file is damaged or cut off.",
            path=filename,
            expected=f"{list(length)} in each",
            found={path: list(shape) for path, shape in lengths.items()},
        )
    rows = {path: item for path, item in datasets.items() if _has_rows(path, item, length)}
    return rows, {path: item for path, item in datasets.items() if path not in rows}


def _has_rows(path: str, item: h5py.Dataset, length: tuple[int, ...]) -> bool:
    """Return whether a dataset has one entry of numbers or text per step."""
    # The dtype of a column of `KEYS` is not checked here: the core names a wrong one.
    is_kept = path in KEYS or item.dtype.kind in "biufc" or _is_text(item)
    return bool(item.shape[:1] == length) and is_kept


def _is_text(item: h5py.Dataset) -> bool:
    return h5py.check_string_dtype(item.dtype) is not None


def _arrays(group: h5py.Group, parent: str = "") -> dict[str, h5py.Dataset]:
    """Return every non-empty dataset below a group, by its path."""
    found: dict[str, h5py.Dataset] = {}
    most = limit("columns")
    for name, item in group.items():
        if isinstance(item, h5py.Dataset) and item.shape is not None:
            found[parent + name] = item
        elif isinstance(item, h5py.Group):
            found |= _arrays(item, f"{parent}{name}/")
        if len(found) > most:
            raise beyond("columns", inf, Path(group.file.filename).name)
    return found


def _key(path: str) -> Key:
    """Return the TED key of a path in the file; ``infos/qpos`` is ``("info", "qpos")``."""
    head, *rest = path.split("/")
    return KEYS.get(path) or (("info", *rest) if head == "infos" else ("info", head, *rest))


def _split_metadata(file: h5py.File) -> tuple[dict[str, Any], list[str]]:
    """Return the scalars under ``metadata`` and the paths of its arrays (policy weights)."""
    scalars, arrays, text_bytes = {}, [], 0
    for path, item in _arrays(file).items():
        if not path.startswith("metadata/"):
            continue
        name = path.removeprefix("metadata/")
        value = read_scalar(item) if item.shape == () else None
        if isinstance(value, bytes):
            text_bytes += len(value)
            check_limit("json_bytes", text_bytes, f"{Path(file.filename).name}: its metadata")
            scalars[name] = value.decode(errors="replace")
        elif value is not None and value.dtype.kind in "biuf":
            scalars[name] = value.item() if isfinite(value) else str(value)  # JSON has no NaN
        else:
            arrays.append(path)
    return scalars, arrays


def _time_limits(terminated: np.ndarray, age: int, limit: int) -> tuple[np.ndarray, int]:
    """Return which rows reach the step limit, and the age of the unfinished trajectory."""
    # terminated: bool `[n]`.
    rows = np.arange(len(terminated))
    # The first row of the trajectory that each row is in: the row after the last termination, and
    # 0 before the first one. The running maximum copies it to the following rows.
    begins = np.zeros(len(terminated), dtype=np.int64)
    begins[1:] = np.where(terminated[:-1], rows[1:], 0)
    first = np.maximum.accumulate(begins)
    # The trajectory of row 0 began `age` rows before.
    steps = rows - first + np.where(first == 0, age, 0)
    return steps % limit == limit - 1, 0 if terminated[-1] else int(steps[-1] + 1) % limit
