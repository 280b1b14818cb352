"""Declared data, opened as buffers, and the digest by which a paper names them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

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
from datasets_cli.replay.persistence.dataset_reference import dataset_of
from datasets_cli.replay.storages.dataset import DatasetStorage, open_installed
from datasets_cli.replay.views.view_file import is_view_file


@dataclass(frozen=True, eq=False)
class OpenedData:
    """What a declaration declares.

    Args:
        buffer: draws it.
        described: what it is.
    """

    buffer: ExperienceReplay
    described: DeclaredDataset


def open_declared(name: str, file: DataFile, root: Path, *, download: bool) -> OpenedData:
    """Open declared data.

    Args:
        name: of a declaration.
        file: that has it.
        root: the cache root.
        download: install what is missing; fail instead where False.

    Raises:
        UsageError: there is no such declaration, or it cannot be made of the data.
        RldsError: a dataset is missing, and cannot be installed.
    """
    declared = file.get(name)
    try:
        return _dataset(declared, file.folder, root, download)
    except (UsageError, IndexError) as error:
        raise UsageError(f"[{DATA}.{name}] of {file.path}: {error}") from error


def _dataset(declared: Declaration, folder: Path, root: Path, download: bool) -> OpenedData:
    assert declared.dataset is not None
    source = declared.dataset
    source = str(folder / source) if is_view_file(source) else source
    buffer = ExperienceReplay(source, root=root, download=download, **declared.draws)
    for step in declared.views:
        buffer = _chosen(buffer, step)
    functions = [load_function(text, folder) for text in declared.transforms]
    for function in functions:
        buffer.append_transform(function)
    identity = {
        "dataset": dataset_of(buffer.storage),
        "transforms": [function_entry(function)["digest"] for function in functions],
        "draws": dict(declared.draws),
    }
    num_trajectories = len(buffer.trajectories)
    described = DeclaredDataset(declared.name, len(buffer), num_trajectories, identity)
    return OpenedData(buffer, described)


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


def open_named(
    name: str,
    project: str | os.PathLike[str] | None,
    config: Config,
    *,
    device: str | torch.device | None,
    pin_memory: bool,
    contiguous: bool,
    text: bool,
) -> DatasetStorage | TensorDictReplayBuffer:
    """Open an installed dataset, or what a project declares; see ``api.open_dataset``.

    Args:
        name: an id, or the name of a declaration.
        project: an ``rlds.toml``, or its folder; None for a dataset.
        config: the root.
        device: of a dataset alone; see ``open_installed``, as for the others.
        pin_memory: whether batches are page-locked.
        contiguous: whether each leaf has memory of its own.
        text: whether columns of text are read.

    Raises:
        UsageError: as ``open_declared``, or there are arguments that only a dataset has.
        RldsError: as ``open_installed``.
    """
    if project is None:
        return open_installed(
            name, config, device=device, pin_memory=pin_memory, contiguous=contiguous, text=text
        )
    if device is not None or pin_memory or contiguous or text:
        raise UsageError(
            "device, pin_memory, contiguous and text are of a dataset; a project declares its data "
            f"in [{DATA}.{name}]."
        )
    return open_declared(name, DataFile(project), config.root, download=True).buffer


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
