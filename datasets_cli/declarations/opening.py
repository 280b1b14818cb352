"""Declared data, opened as buffers, and the digest by which a paper names them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets_cli.config import Config
from datasets_cli.declarations.data_file import DataFile
from datasets_cli.declarations.declaration import Declaration
from datasets_cli.declarations.declared import DeclaredDataset
from datasets_cli.errors import UsageError
from datasets_cli.experience import ExperienceReplay
from datasets_cli.preparation.step_file import DATA
from datasets_cli.preprocessing.function_digest import function_entry
from datasets_cli.preprocessing.functions import load_function
from datasets_cli.replay.buffers.tensordict import TensorDictReplayBuffer
from datasets_cli.replay.mixtures.member import Member
from datasets_cli.replay.mixtures.mixture import Mixture
from datasets_cli.replay.persistence.dataset_reference import dataset_of
from datasets_cli.replay.trajectories.boundaries import TrajectoryKeys
from datasets_cli.replay.views.view_file import is_view_file
from datasets_cli.store.schema.columns import Key


@dataclass(frozen=True, eq=False)
class OpenedData:
    """What a declaration declares."""

    buffer: TensorDictReplayBuffer
    described: DeclaredDataset


def open_declared(name: str, file: DataFile, root: Path, *, download: bool) -> OpenedData:
    """Open declared data."""
    declared = file.get(name)
    try:
        buffer = _buffer(declared, file, root, download)
        functions = [load_function(text, file.folder) for text in declared.transforms]
    except (UsageError, IndexError) as error:
        raise UsageError(f"[{DATA}.{name}] of {file.path}: {error}") from error
    for function in functions:
        buffer.append_transform(function)
    identity = {
        "data": dataset_of(buffer.storage),
        "weights": [*declared.members.values()],
        "transforms": [function_entry(function)["digest"] for function in functions],
        "draws": dict(declared.draws),
    }
    num_trajectories = len(buffer.storage.trajectories(TrajectoryKeys()).starts)
    return OpenedData(buffer, DeclaredDataset(name, len(buffer), num_trajectories, identity))


def _buffer(
    declared: Declaration, file: DataFile, root: Path, download: bool
) -> TensorDictReplayBuffer:
    if declared.dataset is None:
        return _mixture(declared, file, root, download)
    return _dataset(declared.dataset, declared, file, root, download)


def _mixture(
    declared: Declaration, file: DataFile, root: Path, download: bool
) -> TensorDictReplayBuffer:
    """Return the members of a declaration as one buffer."""
    members = []
    for name in declared.members:
        if name in file.declarations:
            source = open_declared(name, file, root, download=download).buffer
        else:
            source = ExperienceReplay(name, root=root, download=download)
        maps = declared.maps.get(name, {}).items()
        mapped = {argument: _by_keys(argument, value) for argument, value in maps}
        members.append(Member(source, name, **mapped))
    weights = [weight for weight in declared.members.values() if weight is not None]
    if weights:
        return Mixture(dict(zip(members, weights, strict=True)), **declared.draws)
    return Mixture(members, **declared.draws)


def _by_keys(argument: str, value: Any) -> Any:
    """Return an argument of ``Member``, whose keys are written with dots."""
    if not isinstance(value, dict):
        return [*map(_key, value)]
    is_renamed = argument == "rename"
    return {_key(name): _key(each) if is_renamed else each for name, each in value.items()}


def _key(name: str) -> Key:
    return tuple(name.split("."))


def _dataset(
    source: str, declared: Declaration, file: DataFile, root: Path, download: bool
) -> ExperienceReplay:
    """Return a dataset with the views of a declaration."""
    source = str(file.folder / source) if is_view_file(source) else source
    buffer = ExperienceReplay(source, root=root, download=download, **declared.draws)
    for step in declared.views:
        buffer = _chosen(buffer, step)
    return buffer


def _chosen(buffer: ExperienceReplay, step: Mapping[str, Any]) -> ExperienceReplay:
    """Return the view that a step of ``views`` makes."""
    match step:
        case {"filter": str(where)}:
            return buffer.filter(where)
        case {"take": int() | float() as count, **how}:
            return buffer.take(count, **how)
        case {"split": fractions, **how}:
            parts = buffer.split(*fractions, seed=how.get("seed", 0))
            if (part := how.get("part", 0)) >= len(parts):
                raise UsageError(f"split {fractions} has {len(parts)} parts, and no part {part}")
            chosen: ExperienceReplay = parts[part]
            return chosen
        case {"episodes_at": list(numbers)}:
            return buffer.episodes_at(numbers)
        case {"drop_duplicates": keys}:
            leaves = None if keys is True else [tuple(key.split(".")) for key in keys]
            return buffer.drop_duplicates(leaves)
        case {"rows": [start, stop]}:
            return buffer.rows(start, stop)
    raise AssertionError(f"{step} was checked when it was read")


def describe_project(
    names: str | Iterable[str],
    project: str | os.PathLike[str],
    config: Config,
    *,
    download: bool,
) -> list[DeclaredDataset]:
    """Return what a project declares; see ``api.declared_datasets``."""
    file = DataFile(project)
    wanted = [names] if isinstance(names, str) else [*names]
    opened = (
        open_declared(name, file, config.root, download=download)
        for name in wanted or file.declarations
    )
    return [found.described for found in opened]
