"""Declared data: the tables ``[data.NAME]``, opened as buffers, with the digests of papers."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets_cli.errors import UsageError, arguments_named, as_in_python
from datasets_cli.experience.replay import ExperienceReplay
from datasets_cli.parallel.function_state import identity_of
from datasets_cli.parallel.functions import load_function
from datasets_cli.project.declaration import (
    Declaration,
    DeclaredDataset,
    View,
    declaration_of,
    given,
)
from datasets_cli.project.file import DATA, FILENAME, data_file, data_tables
from datasets_cli.replay.buffer.tensordict import TensorDictReplayBuffer
from datasets_cli.replay.mixing.columns import Member
from datasets_cli.replay.mixing.mixture import Mixture
from datasets_cli.replay.trajectories.bounds import TrajectoryKeys
from datasets_cli.schema.columns import Key


class DataFile:
    """The declarations of an experiment, in the file that also has its steps."""

    def __init__(self, path: str | os.PathLike[str] = FILENAME) -> None:
        self.path = data_file(path)
        self.folder = self.path.parent
        self.tables = data_tables(self.path)

    def get(self, name: str) -> Declaration:
        """Return a declaration; what is wrong with others does not matter."""
        if name not in self.tables:
            known = ", ".join(self.tables) or "none"
            raise UsageError(f"{self.path} has no [{DATA}.{name}]. It has: {known}.")
        self._refuse_circle((name,))
        return self._read(name)

    def _read(self, name: str) -> Declaration:
        try:
            with arguments_named(as_in_python):
                return declaration_of(self.tables[name])
        except UsageError as error:
            why = str(error).rstrip(".")
            raise UsageError(f"[{DATA}.{name}] of {self.path}: {why}.") from error

    def _refuse_circle(self, way: tuple[str, ...]) -> None:
        for member in self._read(way[-1]).weight_of:
            if member in way:
                raise UsageError(
                    f"[{DATA}.{member}] of {self.path} is a member of itself: "
                    f"{' -> '.join((*way, member))}."
                )
            if member in self.tables:
                self._refuse_circle((*way, member))


@dataclass(frozen=True, eq=False)
class OpenedData:
    """What a declaration declares."""

    buffer: TensorDictReplayBuffer
    described: DeclaredDataset


def open_declared(name: str, file: DataFile, root: Path, *, download: bool) -> OpenedData:
    """Open declared data."""
    declared = file.get(name)
    try:
        with arguments_named(as_in_python):
            buffer = _buffer(declared, file, root, download)
            functions = [load_function(text, file.folder) for text in declared.transforms or ()]
    except UsageError as error:
        raise UsageError(f"[{DATA}.{name}] of {file.path}: {error}") from error
    for function in functions:
        buffer.append_transform(function)
    identity = {
        "data": buffer.storage.reference(),
        "weights": [*declared.weight_of.values()],
        "transforms": [identity_of(function).digest for function in functions],
        "draws": declared.draws,
    }
    num_trajectories = len(buffer.storage.trajectories(TrajectoryKeys()).starts)
    return OpenedData(buffer, DeclaredDataset(name, len(buffer), num_trajectories, identity))


def _buffer(
    declared: Declaration, file: DataFile, root: Path, download: bool
) -> TensorDictReplayBuffer:
    """Return the one dataset of a declaration, with its views, or its members as one buffer."""
    if (source := declared.dataset) is not None:
        buffer = ExperienceReplay(source, root=root, download=download, **declared.draws)
        for view in declared.views or ():
            buffer = _chosen(buffer, view)
        return buffer
    members = []
    columns = declared.map or {}
    for name in declared.weight_of:
        member: TensorDictReplayBuffer
        if name in file.tables:
            member = open_declared(name, file, root, download=download).buffer
        else:
            member = ExperienceReplay(name, root=root, download=download)
        maps = given(columns[name]).items() if name in columns else ()
        mapped = {argument: _by_keys(argument, value) for argument, value in maps}
        members.append(Member(member, name, **mapped))
    weights = [weight for weight in declared.weight_of.values() if weight is not None]
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


def _chosen(buffer: ExperienceReplay, view: View) -> ExperienceReplay:
    """Return the view that a step of ``views`` makes."""
    match given(view):
        case {"filter": str(where)}:
            return buffer.filter(where)
        case {"take": int() | float() as count, **how}:
            return buffer.take(count, **how)
        case {"split": fractions, **how}:
            with warnings.catch_warnings(action="ignore"):  # of the parts that are not chosen
                parts = buffer.split(*fractions, seed=how.get("seed", 0))
            if (part := how.get("part", 0)) >= len(parts):
                raise UsageError(f"split {fractions} has {len(parts)} parts, and no part {part}")
            chosen: ExperienceReplay = parts[part]
            return chosen
        case {"episodes_at": numbers}:
            return buffer.episodes_at([*numbers])
        case {"rows": [start, stop]}:
            return buffer.rows(start, stop)
    raise AssertionError(f"{view} was checked when it was read")
