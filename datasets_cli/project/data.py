"""Declared data: tables ``[data.NAME]`` opened as buffers, with their digests."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets_cli.errors import UsageError, arguments_named, as_in_python
from datasets_cli.experience.replay import ExperienceReplay
from datasets_cli.preprocessing.function import identity_of, load_function
from datasets_cli.project.declaration import (
    Declaration,
    DeclaredDataset,
    View,
    declaration_of,
    fields_of,
)
from datasets_cli.project.file import DATA, FILENAME, data_file, data_tables
from datasets_cli.replay.buffer.tensordict import TensorDictReplayBuffer
from datasets_cli.replay.mixing.column_mapping import Member
from datasets_cli.replay.mixing.mixture import Mixture
from datasets_cli.replay.trajectories.bounds import TrajectoryKeys
from datasets_cli.schema.columns import Key


class DataFile:
    """The declarations of an ``rlds.toml``."""

    def __init__(self, path: str | os.PathLike[str] = FILENAME) -> None:
        self.path = data_file(path)
        self.folder = self.path.parent
        self.tables = data_tables(self.path)

    def get(self, name: str) -> Declaration:
        """Return a declaration; only it and its members are checked."""
        if name not in self.tables:
            known = ", ".join(self.tables) or "none"
            raise UsageError(
                f"{self.path} has no [{DATA}.{name}]. It has: {known}.",
                argument="names",
                path=self.path,
                expected=[*self.tables],
                found=name,
            )
        self._refuse_circle((name,))
        return self._read(name)

    def _read(self, name: str) -> Declaration:
        with arguments_named(as_in_python):
            try:
                return declaration_of(self.tables[name])
            except UsageError as error:
                error.prepend(f"[{DATA}.{name}] of {self.path}: ")
                error.path = self.path
                raise

    def _refuse_circle(self, way: tuple[str, ...]) -> None:
        for member in self._read(way[-1]).weight_of:
            if member in way:
                raise UsageError(
                    f"[{DATA}.{member}] of {self.path} is a member of itself: "
                    f"{' -> '.join((*way, member))}.",
                    argument="members",
                    path=self.path,
                    found=(*way, member),
                )
            if member in self.tables:
                self._refuse_circle((*way, member))


@dataclass(frozen=True, eq=False)
class OpenedData:
    """A declared buffer, and its description."""

    buffer: TensorDictReplayBuffer
    described: DeclaredDataset


def open_declared(name: str, file: DataFile, root: Path, *, download: bool) -> OpenedData:
    """Open declared data."""
    declared = file.get(name)
    with arguments_named(as_in_python):
        try:
            buffer = _buffer(declared, file, root, download)
            functions = [load_function(text, file.folder) for text in declared.transforms or ()]
        except UsageError as error:
            error.prepend(f"[{DATA}.{name}] of {file.path}: ")
            error.path = error.path or file.path
            raise
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
    """Return the buffer of a declaration: a view of one dataset, or a mixture."""
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
        maps = fields_of(columns[name]).items() if name in columns else ()
        mapped = {argument: _by_keys(argument, value) for argument, value in maps}
        members.append(Member(member, name, **mapped))
    weights = [weight for weight in declared.weight_of.values() if weight is not None]
    if weights:
        return Mixture(dict(zip(members, weights, strict=True)), **declared.draws)
    return Mixture(members, **declared.draws)


def _by_keys(argument: str, value: Any) -> Any:
    """Return an argument of ``Member``, with keys as tuples."""
    if not isinstance(value, dict):
        return [*map(_key, value)]
    is_renamed = argument == "rename"
    return {_key(name): _key(each) if is_renamed else each for name, each in value.items()}


def _key(name: str) -> Key:
    return tuple(name.split("."))


def _chosen(buffer: ExperienceReplay, view: View) -> ExperienceReplay:
    """Return the view of one step of ``views``."""
    match fields_of(view):
        case {"filter": str(where)}:
            return buffer.filter(where)
        case {"take": int() | float() as count, **how}:
            return buffer.take(count, **how)
        case {"split": fractions, **how}:
            with warnings.catch_warnings(action="ignore"):  # about parts that are not used
                parts = buffer.split(*fractions, seed=how.get("seed", 0))
            if (part := how.get("part", 0)) >= len(parts):
                raise UsageError(
                    f"split {list(fractions)} has {len(parts)} parts, and no part {part}.",
                    argument="part",
                    expected=f"0 to {len(parts) - 1}",
                    found=part,
                )
            chosen: ExperienceReplay = parts[part]
            return chosen
        case {"episodes_at": numbers}:
            return buffer.episodes_at([*numbers])
        case {"rows": [start, stop]}:
            return buffer.rows(start, stop)
    raise AssertionError(f"{view} was checked when it was read")
