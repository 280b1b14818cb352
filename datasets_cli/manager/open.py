"""Opening the rows of an installed dataset, or the data that a project declares."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, overload

from datasets_cli.config import Config, Root, choose_config
from datasets_cli.errors import UsageError
from datasets_cli.experience.opening import open_rows
from datasets_cli.project.file import DATA
from datasets_cli.replay.storages.options import StorageOptions

if TYPE_CHECKING:
    import torch

    from datasets_cli.project.declaration import DeclaredDataset
    from datasets_cli.replay.buffers.tensordict import TensorDictReplayBuffer
    from datasets_cli.replay.storages.dataset import DatasetStorage


@overload
def open_dataset(
    id: str,
    *,
    project: str | os.PathLike[str],
    root: Root = None,
    config: Config | None = None,
) -> TensorDictReplayBuffer: ...


@overload
def open_dataset(
    id: str,
    *,
    device: str | torch.device | None = None,
    pin_memory: bool = False,
    contiguous: bool = False,
    text: bool = False,
    root: Root = None,
    config: Config | None = None,
) -> DatasetStorage: ...


def open_dataset(
    id: str,
    *,
    project: str | os.PathLike[str] | None = None,
    device: str | torch.device | None = None,
    pin_memory: bool = False,
    contiguous: bool = False,
    text: bool = False,
    root: Root = None,
    config: Config | None = None,
) -> DatasetStorage | TensorDictReplayBuffer:
    """Open the rows of an installed dataset, read-only; or the data that a project declares.

    Of a dataset the result is a storage: ``len`` counts the rows, ``get`` and ``run`` return copies
    of some rows as a TensorDict, ``column`` one key of all rows, ``offsets`` where trajectories
    begin; and every replay buffer takes it as its ``storage``. It is not an ``ExperienceReplay``,
    which downloads what is missing and draws batches: to open a dataset is to read its rows in
    their order, and batches have a class with a name of its own.

    With ``project`` it is the buffer that a table ``[data.NAME]`` of ``rlds.toml`` declares: a
    dataset, or a view or a mixture of some, with its transforms; datasets that are missing are
    installed. See docs/declarations.md.

    Args:
        id: ``family/name``; the family may be left out where the name is unique. With ``project``,
            the name of the table.
        project: an ``rlds.toml``, or its folder, whose functions are imported.
        device: copy the rows into this device's memory, and give batches there; None reads them
            from the disk.
        pin_memory: leave the rows on the disk and gather batches into page-locked memory.
        contiguous: give every leaf memory of its own, for code that calls ``view``.
        text: read the columns of text too, as non-tensor entries of batches.
        root: the cache root.
        config: root, mirrors and offline mode, instead of ``root``.

    Raises:
        DatasetNotInstalled: it is known, but not under this root.
        UnknownDataset: no recipe and no folder has that name.
        DamagedDataset: its files are not what its manifest says.
    """
    config = choose_config(root, config)
    options = StorageOptions(device=device, pin_memory=pin_memory, contiguous=contiguous, text=text)
    if project is None:
        return open_rows(id, config, options)
    if options != StorageOptions():
        raise UsageError(
            "device, pin_memory, contiguous and text are of a dataset; a project declares its data "
            f"in [{DATA}.{id}]."
        )
    # Mixtures, views and installing: of a dataset that is there they take longer than to open it.
    from datasets_cli.project.data import DataFile, open_declared

    return open_declared(id, DataFile(project), config.root, download=True).buffer


def declared_datasets(
    names: str | Iterable[str] = (),
    *,
    project: str | os.PathLike[str] = "rlds.toml",
    download: bool = False,
    root: Root = None,
    config: Config | None = None,
) -> list[DeclaredDataset]:
    """Return what a project's declared data are, each with the digest that a paper can give.

    Args:
        names: of tables ``[data.NAME]``; all of them by default.
        project: an ``rlds.toml``, or its folder, whose functions are imported.
        download: install datasets that are missing; fail instead by default.
        root: the cache root.
        config: root, mirrors and offline mode, instead of ``root``.

    Raises:
        UsageError: there is no such file or table, or it cannot be made of the data.
        DatasetNotInstalled: a dataset is missing.
    """
    from datasets_cli.project.data import describe_project

    return describe_project(names, project, choose_config(root, config), download=download)
