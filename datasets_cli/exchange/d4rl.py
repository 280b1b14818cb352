"""Reads the HDF5 layouts of offline RL, and writes D4RL's.

D4RL        observations, actions, rewards, terminals, timeouts, ...: arrays of all steps
d3rlpy 1    as D4RL without timeouts; episode_terminals marks the last step of an episode
d3rlpy 2    observations_0, actions_0, rewards_0, terminated_0 (one flag): arrays of each episode
robomimic   data/demo_0/{obs/..., actions, rewards, next_obs/..., dones}: a group for each episode
ManiSkill   traj_0/{obs, actions, rewards, terminated, truncated, ...}: obs has T + 1 rows
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from datasets_cli.core.progress import Progress, Rows
from datasets_cli.errors import UsageError, WrongRows, argument
from datasets_cli.exchange.columns import named_columns
from datasets_cli.exchange.flat import (
    COMPUTED,
    FLAGS,
    flat_name,
    flat_steps,
    is_nameable,
    key_runs,
    recorded_columns,
)
from datasets_cli.exchange.format import ENDS, ColumnMap, Recognised, reject_truncated
from datasets_cli.exchange.mapping import KNOWN_NAMES, guess
from datasets_cli.exchange.steps import StepColumns, check_flags, flagged_ends
from datasets_cli.formats.hdf5 import open_hdf5, problem_of, read_scalar
from datasets_cli.formats.hdf5_columns import (
    as_bytes,
    datasets_below,
    described,
    new_hdf5,
    runs_of,
)
from datasets_cli.formats.hdf5_episodes import DATA, HDF5Episodes, episode_names
from datasets_cli.formats.limits import read_json
from datasets_cli.schema.columns import (
    EPISODE,
    NUMPY_TYPES,
    REWARD,
    TRAJECTORY_END,
    TRUNCATED,
    Key,
    show_key,
)
from datasets_cli.schema.steps import NEXT_OBSERVATION
from datasets_cli.schema.texts import TEXT, RecordedColumn
from datasets_cli.store.arrays import DatasetArrays, RecordedSteps
from datasets_cli.store.manifest import Manifest

PATHS: dict[Key, str] = {
    ("observation",): "observations",
    ("action",): "actions",
    **dict(zip((REWARD, *FLAGS), ("rewards", "terminals", "timeouts"), strict=True)),
    NEXT_OBSERVATION: "next_observations",
    ("info",): "infos",
    ("next", "info"): "next_infos",
}
"""The path of each key; nested keys are below its path."""
METADATA = "metadata"
Episodes = dict[str, dict[str, str]]
"""For each episode, the paths of its datasets in the file, by their names in the episode."""
MANIFEST_METADATA = f"{METADATA}/rlds"
"""The path of the metadata of a manifest, as JSON."""
TERMINATED_FLAG, NUMBERED = "terminated", re.compile(r"(.+?)_(\d+)(?:_(\d+))?")
"""d3rlpy's names: the dataset, the episode, and the number of one of several observations."""
GROUP = re.compile(r"traj_(\d+)")
"""The name of a group of ManiSkill."""
BY_EPISODES = "each episode of the file is a trajectory"


def recognise(path: Path) -> Recognised | None:
    if not path.is_file() or not h5py.is_hdf5(path):
        reject_truncated(path, ".hdf5", ".h5")
        return None
    with open_hdf5(path) as file:
        if episode_names(file):
            return _recognise_demonstrations(HDF5Episodes(file))
        if episodes := _episodes(file, path.name):
            return _recognise_episodes(file, episodes, path.name)
        if guess(file) or any(isinstance(item, h5py.Dataset) for item in file.values()):
            return _recognise_flat(datasets_below(file, path.name), path.name)
    return None


def _recognise_flat(found: dict[str, h5py.Dataset], filename: str) -> Recognised:
    info = _metadata_of(found.pop(MANIFEST_METADATA, None), filename)
    of_metadata = [name for name in found if name.startswith(f"{METADATA}/")]
    dropped = dict.fromkeys(of_metadata, f"it is in {METADATA}")
    dropped |= {name: problem for name, item in found.items() if (problem := problem_of(item))}
    good = {name: item for name, item in found.items() if name not in dropped}
    columns = _guessed(good, filename)
    # An info of another length than the actions is not mapped by its name; the user can map it.
    num_steps = {good[name].shape[0] for key, name in columns.items() if key.startswith("action")}
    columns = {
        key: name
        for key, name in columns.items()
        if not key.startswith("info") or {good[name].shape[0]} == num_steps
    }
    shown = {name: described(item) for name, item in good.items()}
    has_end_marks = show_key(REWARD) in columns and "ends" in columns
    return Recognised(shown, columns, dropped, info, format="d3rlpy" if has_end_marks else "")


def _metadata_of(item: h5py.Dataset | None, filename: str) -> dict[str, Any]:
    """Return the metadata in a file that rlds wrote; empty for other files."""
    is_text_item = item is not None and item.shape == () and h5py.check_string_dtype(item.dtype)
    if not is_text_item:
        return {}
    metadata = read_json(read_scalar(item), f"{filename}: {MANIFEST_METADATA}")
    return metadata if isinstance(metadata, dict) else {}


def _recognise_episodes(file: h5py.File, episodes: Episodes, filename: str) -> Recognised:
    kinds: dict[str, list[str]] = {}
    used = {path.split("/")[0] for paths in episodes.values() for path in paths.values()}
    dropped = dict.fromkeys(file.keys() - used, "it is outside the episodes")
    for episode, paths in episodes.items():
        for name, item in ((name, file[path]) for name, path in paths.items()):
            if (problem := problem_of(item)) and (item.shape or name != TERMINATED_FLAG):
                dropped[name] = problem
            else:
                kinds.setdefault(name, []).append(described(item))
        attributes = file.get(episode, file).attrs
        dropped |= {f"attribute {name}": "it is of an episode" for name in attributes}
    for name, of_episodes in kinds.items():
        if len(of_episodes) < len(episodes):
            dropped.setdefault(name, f"only {len(of_episodes):,} of {len(episodes):,} have it")
    columns = {name: each[0] for name, each in kinds.items() if name not in dropped}
    name = "maniskill" if GROUP.fullmatch(next(iter(episodes))) else "d3rlpy"
    guessed = _guessed(columns, filename)
    return Recognised(columns, guessed, dropped, ends=BY_EPISODES, format=name)


def _recognise_demonstrations(episodes: HDF5Episodes) -> Recognised:
    columns = {name: str(rows) for name, rows in episodes.columns.items()}
    keys = {show_key(key): name for key, name in episodes.keys().items()}
    dropped = {**episodes.dropped, "attributes of episodes": "they are not of steps"}
    return Recognised(
        columns,
        _guessed(columns, episodes.filename) if episodes.missing else keys,
        dropped,
        {"attributes": episodes.attributes},
        ends=BY_EPISODES,
        notes=tuple(episodes.notes),
        format="robomimic",
    )


def _guessed(names: Iterable[str], filename: str) -> dict[str, str]:
    """Return the map of the paths that begin with a known name."""
    if not names:
        raise WrongRows(
            f"{filename} has no columns. Expected datasets with one row for each step.",
            path=filename,
            expected="datasets with one row for each step",
        )
    return guess(names, "/")


def blocks(path: Path, columns: ColumnMap) -> Iterator[StepColumns]:
    with open_hdf5(path) as file:
        demonstrations = HDF5Episodes(file) if episode_names(file) else None
        episodes = {} if demonstrations else _episodes(file, path.name)
        mapped = [key for key in ENDS if key in columns]
        if mapped and (episodes or demonstrations):
            raise UsageError(
                f"{argument('map')} {mapped[0]}: {BY_EPISODES}.",
                argument="map",
                key=mapped[0],
                advice="Leave it out.",
            )
        if demonstrations:
            yield from _demonstration_steps(demonstrations, columns)
            return
        if episodes:
            for episode, paths in episodes.items():
                datasets = {key: file[paths[name]] for key, name in columns.items()}
                yield from _episode_steps(datasets, f"{path.name}: {episode}")
            return

        def runs(names: list[str]) -> Iterator[dict[str, np.ndarray]]:
            return runs_of({name: file[name] for name in names}, path.name)

        yield from flat_steps(columns, runs)


def _episodes(file: h5py.File, filename: str) -> Episodes:
    """Return the episodes in the order of their numbers; empty for arrays of all steps."""
    if "columns" in file and "num_episodes" in file:  # d3rlpy 2
        numbered: dict[int, dict[str, str]] = {}
        for name in file:
            if part := NUMBERED.fullmatch(name):
                below = f"/{part[3]}" if part[3] else ""
                numbered.setdefault(int(part[2]), {})[part[1] + below] = name
        return {f"episode {number}": numbered[number] for number in sorted(numbered)}
    numbers = {name: int(found[1]) for name in file if (found := GROUP.fullmatch(name))}
    in_order = {name: file[name] for name in sorted(numbers, key=numbers.__getitem__)}
    return {
        name: {path: f"{name}/{path}" for path in datasets_below(item, filename)}
        for name, item in in_order.items()
        if isinstance(item, h5py.Group)
    }


def _demonstration_steps(episodes: HDF5Episodes, columns: ColumnMap) -> Iterator[StepColumns]:
    first = 0
    for run in episodes.blocks({tuple(key.split(".")): name for key, name in columns.items()}):
        ends = run.pop(TRAJECTORY_END)
        named = named_columns(run)
        yield {**named, TRAJECTORY_END: check_flags(ends, named, first)}
        first += len(ends)


def _episode_steps(datasets: dict[str, h5py.Dataset], what: str) -> Iterator[StepColumns]:
    last = [key for key, item in datasets.items() if not item.shape]  # a flag of the last step
    flags = {key: bool(read_scalar(datasets.pop(key))) for key in last}
    first, num_steps = 0, min((item.shape[0] for item in datasets.values()), default=0)
    if not num_steps:
        raise WrongRows(f"{what} has no steps.", advice="Remove it, or check the file.")
    longer = {
        key: datasets.pop(key)
        for key, item in [*datasets.items()]
        if item.shape[0] == num_steps + 1
        and key.startswith(("observation", "info"))
        and f"next.{key}" not in datasets
    }
    for run in runs_of(datasets, what, longer):
        ends = np.arange(first, first + len(next(iter(run.values())))) == num_steps - 1
        run |= {key: ends & flag for key, flag in flags.items()}
        named = named_columns({tuple(key.split(".")): rows for key, rows in run.items()})
        yield {**named, TRAJECTORY_END: check_flags(ends, named, first)}
        first += len(ends)


def losses(manifest: Manifest) -> list[str]:
    lost = [f"{show_key(key)}: {why}" for key, why in _left_out(manifest).items()]
    if not {*FLAGS} <= {column.key for column in _columns(manifest)}:
        lost.append(f"the ends of trajectories: the file has no {PATHS[TRUNCATED]}")
    return lost


def _columns(manifest: Manifest) -> tuple[RecordedColumn, ...]:
    """Return the columns of the file, by their paths: those of D4RL's file where it is one."""
    if manifest.recorded and all(map(_has_d4rls_name, manifest.recorded)):
        return manifest.recorded
    left_out = _left_out(manifest)
    return tuple(
        replace(each, name=flat_name(each.key, PATHS, "/"))
        for each in recorded_columns(replace(manifest, recorded=()))
        if each.key not in left_out
    )


def _has_d4rls_name(column: RecordedColumn) -> bool:
    """Return whether a column has its name in D4RL's files; each of them has its own infos."""
    return "info" in column.key[:2] or column.name == flat_name(column.key, PATHS, "/")


def _left_out(manifest: Manifest) -> dict[Key, str]:
    """Return the reason for each column that is not written."""
    taken = {*PATHS.values(), *chain(*KNOWN_NAMES.values()), DATA, METADATA}
    left_out = {}
    for key, kind in ((each.key, each.dtype) for each in manifest.all_columns):
        if key in COMPUTED or key == EPISODE:
            continue
        if kind not in {*NUMPY_TYPES, TEXT}:
            left_out[key] = f"h5py has no {kind}, and the column is left out"
        is_renamed = key[:1] in PATHS or key[:2] in PATHS
        is_taken = not is_renamed and key[0] in taken
        if is_taken or not is_nameable(key) or any("/" in name for name in key):
            left_out[key] = "it is left out, because its name has another meaning in HDF5 or D4RL"
    return left_out


def write(dataset: DatasetArrays, path: Path, progress: Progress, out: Path) -> str:
    """Write D4RL's layout: every recorded step; see ``Format``."""
    _check_ends(dataset)
    manifest = dataset.manifest
    steps, first = RecordedSteps(dataset, _columns(manifest)), 0
    with new_hdf5(path) as (file, disk):
        for each in steps.columns:
            dtype = h5py.string_dtype() if each.numpy_dtype.hasobject else each.numpy_dtype
            file.create_dataset(each.name, (len(steps), *each.shape), dtype)
        for block in steps.blocks():
            stop = first + len(next(iter(block.values())))
            for each in steps.columns:
                rows = block[each.name]
                rows = as_bytes(each.key, rows) if rows.dtype.hasobject else rows
                file[each.name][first:stop] = rows
            disk.check()
            first = stop
            progress(Rows(dataset.id, first, len(steps)))
        if metadata := manifest.to_json()["metadata"]:
            file[MANIFEST_METADATA] = json.dumps(metadata)
    return f"h5py.File({str(out)!r})"


def _check_ends(dataset: DatasetArrays) -> None:
    """Check that the flags mark the ends of trajectories, because the layout stores only flags."""
    first = 0
    for run in key_runs(dataset, FLAGS):
        count = len(run[TRUNCATED])
        ends = np.isin(np.arange(first + 1, first + count + 1), dataset.starts)
        if (wrong := np.flatnonzero(flagged_ends(run, count) != ends)).size:
            row = first + int(wrong[0])
            raise WrongRows(
                f"{dataset.id}: the flags of row {row:,} do not match the ends of trajectories. "
                "D4RL's layout stores only the flags.",
                id=dataset.id,
                row=row,
                advice="Choose another format.",
            )
        first += count
