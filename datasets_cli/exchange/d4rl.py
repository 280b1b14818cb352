"""HDF5 as offline RL has it: D4RL's layout both ways; robomimic's and d3rlpy's are read.

D4RL        observations, actions, rewards, terminals, timeouts, ...: all steps in one run
d3rlpy 1    the same without timeouts; episode_terminals marks the last step of an episode
robomimic   data/demo_0/{obs/..., actions, rewards, next_obs/..., dones}: an episode a group
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from datasets_cli.errors import SourceError, UsageError, argument
from datasets_cli.exchange.flat import (
    FLAGS,
    MADE_AGAIN,
    flat_name,
    flat_steps,
    is_nameable,
    key_runs,
)
from datasets_cli.exchange.format import ColumnMap, Recognised, refuse_cut
from datasets_cli.exchange.hdf5_columns import (
    datasets_below,
    described,
    encoded,
    problem_of,
    runs_of,
)
from datasets_cli.exchange.mapping import ENDS, KNOWN_NAMES, guess
from datasets_cli.formats.hdf5 import open_hdf5, read_scalar
from datasets_cli.formats.json_document import read_json
from datasets_cli.own.columns import named_columns
from datasets_cli.own.ends import check_flags, flagged_ends
from datasets_cli.own.steps import StepColumns
from datasets_cli.progress import Progress
from datasets_cli.schema.columns import EPISODE, REWARD, TRAJECTORY_END, Key, show_key
from datasets_cli.schema.element_types import NUMPY_TYPES
from datasets_cli.schema.steps import NEXT_OBSERVATION
from datasets_cli.schema.texts import TEXT, AnyColumn, is_text
from datasets_cli.store.arrays import DatasetArrays
from datasets_cli.store.manifest import Manifest

ABOUT = "HDF5 in D4RL's layout; robomimic's and d3rlpy's are read, too"
PATHS: dict[Key, str] = {
    ("observation",): "observations",
    ("action",): "actions",
    **dict(zip((REWARD, *FLAGS), ("rewards", "terminals", "timeouts"), strict=True)),
    NEXT_OBSERVATION: "next_observations",
    ("info",): "infos",
    ("next", "info"): "next_infos",
}
"""The path of each key; what is below a key is below its path."""
EPISODES, METADATA = "data", "metadata"
SAID = f"{METADATA}/rlds"
"""What a manifest says of the data, as JSON."""
BY_GROUPS = f"each group of {EPISODES} is a trajectory"


def recognise(path: Path) -> Recognised | None:
    """Return the columns of an HDF5 file; see ``Format``."""
    if not path.is_file() or not h5py.is_hdf5(path):
        refuse_cut(path, ".hdf5", ".h5")
        return None
    with open_hdf5(path) as file:
        if episodes := _episodes(file):
            return _of_episodes(file[EPISODES], episodes, path.name)
        if guess(file) or any(isinstance(item, h5py.Dataset) for item in file.values()):
            return _of_one_run(datasets_below(file, path.name), path.name)
    return None


def _of_one_run(found: dict[str, h5py.Dataset], filename: str) -> Recognised:
    info = _said(found.pop(SAID, None), filename)
    dropped = {name: problem for name, item in found.items() if (problem := problem_of(item))}
    of_metadata = [name for name in found if name.startswith(f"{METADATA}/")]
    dropped = dict.fromkeys(of_metadata, f"it is of {METADATA}") | dropped
    good = {name: item for name, item in found.items() if name not in dropped}
    columns = _guessed(good, filename)
    # What has another length than the rewards is no field of steps, and can still be named.
    num_steps = {good[name].shape[0] for key, name in columns.items() if key == show_key(REWARD)}
    columns = {
        key: name
        for key, name in columns.items()
        if not key.startswith("info") or {good[name].shape[0]} == num_steps
    }
    return Recognised(
        {name: described(item) for name, item in good.items()}, columns, dropped, info
    )


def _said(item: h5py.Dataset | None, filename: str) -> dict[str, Any]:
    """Return what the file says of the data, where this program wrote it."""
    is_ours = item is not None and item.shape == () and h5py.check_string_dtype(item.dtype)
    said = read_json(read_scalar(item), f"{filename}: {SAID}") if is_ours else {}
    return said if isinstance(said, dict) else {}


def _of_episodes(parent: h5py.Group, episodes: list[str], filename: str) -> Recognised:
    kinds: dict[str, list[str]] = {}
    dropped = dict.fromkeys(parent.keys() - episodes, f"it is no episode of {EPISODES}")
    dropped |= dict.fromkeys(parent.parent.keys() - {EPISODES}, f"it is not of {EPISODES}")
    dropped |= {f"attribute {name}": "it is of all episodes" for name in parent.attrs}
    for episode in episodes:
        for name, item in datasets_below(parent[episode], f"{filename}: {episode}").items():
            if problem := problem_of(item):
                dropped[name] = problem
            else:
                kinds.setdefault(name, []).append(described(item))
        dropped |= {f"attribute {name}": "it is of an episode" for name in parent[episode].attrs}
    for name, of_episodes in kinds.items():
        if len(of_episodes) < len(episodes):
            dropped.setdefault(name, f"only {len(of_episodes):,} of {len(episodes):,} have it")
    columns = {name: each[0] for name, each in kinds.items() if name not in dropped}
    return Recognised(columns, _guessed(columns, filename), dropped, ends=BY_GROUPS)


def _guessed(names: Iterable[str], filename: str) -> dict[str, str]:
    """Return the map of paths whose first name has a meaning."""
    if not names:
        raise SourceError(f"{filename} has no dataset with a row for each step.")
    # robomimic's states are a simulator's, and no observations.
    has_obs = any(name.startswith("obs/") for name in names)
    return guess((name for name in names if not (has_obs and name == "states")), "/")


def blocks(path: Path, columns: ColumnMap) -> Iterator[StepColumns]:
    """Yield all steps; see ``Format``."""
    with open_hdf5(path) as file:
        if episodes := _episodes(file):
            if told := [key for key in ENDS if key in columns]:
                raise UsageError(f"{argument('map')}: leave {told[0]} out: {BY_GROUPS}.")
            for name in episodes:
                yield from _episode_steps(file[EPISODES][name], f"{path.name}: {name}", columns)
            return

        def runs(names: list[str]) -> Iterator[dict[str, np.ndarray]]:
            return runs_of({name: file[name] for name in names}, path.name)

        yield from flat_steps(columns, runs)


def _episodes(file: h5py.File) -> list[str]:
    """Return the names of groups that end with a number, in the order of the numbers."""
    parent = file.get(EPISODES)
    if not isinstance(parent, h5py.Group):
        return []
    numbers = {name: int(found[0]) for name in parent if (found := re.search("[0-9]+$", name))}
    groups = [name for name in numbers if isinstance(parent[name], h5py.Group)]
    return sorted(groups, key=numbers.__getitem__)


def _episode_steps(group: h5py.Group, what: str, columns: ColumnMap) -> Iterator[StepColumns]:
    datasets = {key: group[name] for key, name in columns.items()}
    first, num_steps = 0, min((item.shape[0] for item in datasets.values()), default=0)
    if not num_steps:
        raise SourceError(f"{what} has no step. Remove the group, or check the file.")
    for run in runs_of(datasets, what):
        named = named_columns({tuple(key.split(".")): rows for key, rows in run.items()})
        ends = np.arange(first, first + len(next(iter(run.values())))) == num_steps - 1
        yield {**named, TRAJECTORY_END: check_flags(ends, named, first)}
        first += len(ends)


def losses(manifest: Manifest) -> list[str]:
    """Return what a file cannot hold; see ``Format``."""
    return [f"{show_key(key)}: {why}" for key, why in _left_out(manifest).items()]


def _left_out(manifest: Manifest) -> dict[Key, str]:
    """Return the columns that are not written, each with the reason."""
    taken = {*PATHS.values(), *chain(*KNOWN_NAMES.values()), EPISODES, METADATA}
    left_out = {}
    for key, kind in ((each.key, each.dtype) for each in _columns(manifest)):
        if key in MADE_AGAIN or key == EPISODE:
            continue
        if kind not in {*NUMPY_TYPES, TEXT}:
            left_out[key] = f"h5py has no {kind}, and the column is left out"
        is_renamed = key[:1] in PATHS or key[:2] in PATHS
        is_taken = not is_renamed and key[0] in taken
        if is_taken or not is_nameable(key) or any("/" in name for name in key):
            left_out[key] = "its name means something else in HDF5 or D4RL, and it is left out"
    return left_out


def _columns(manifest: Manifest) -> tuple[AnyColumn, ...]:
    return (*manifest.columns, *manifest.texts)


def write(dataset: DatasetArrays, path: Path, progress: Progress) -> None:
    """Write D4RL's layout; see ``Format``."""
    manifest = dataset.manifest
    unwritten = {*_left_out(manifest), *MADE_AGAIN, EPISODE}
    with h5py.File(path, "x") as file:
        written = {
            each.key: file.create_dataset(
                flat_name(each.key, PATHS, "/"),
                (len(dataset), *(() if each.key in (REWARD, *FLAGS) else each.shape)),
                h5py.string_dtype() if each.dtype == TEXT else each.dtype,
            )
            for each in _columns(manifest)
            if each.key not in unwritten
        }
        first = 0
        for run in key_runs(dataset, written):
            count = len(next(iter(run.values())))
            _check_ends(dataset, run, first, count)
            for key, item in written.items():
                rows = encoded(key, run[key]) if is_text(run[key]) else run[key]
                item[first : first + count] = rows.reshape(count, *item.shape[1:])
            first += count
            progress.writing(first)
        if said := manifest.to_json()["metadata"]:
            file[SAID] = json.dumps(said)


def _check_ends(dataset: DatasetArrays, run: StepColumns, first: int, count: int) -> None:
    """Check that flags say where trajectories end: the layout has nothing else."""
    ends = np.isin(np.arange(first + 1, first + count + 1), dataset.starts)
    if (wrong := np.flatnonzero(flagged_ends(run, count) != ends)).size:
        raise UsageError(
            f"{dataset.id}: row {first + wrong[0]:,} ends a trajectory without a flag, or has one "
            "and ends none. D4RL's layout has flags alone: export another format."
        )
