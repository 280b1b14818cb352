"""Opening the rows of an installed dataset, or the data that a project declares."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, overload

from datasets_cli.catalogue.selection import as_list
from datasets_cli.config import RootOptions
from datasets_cli.errors import UsageError
from datasets_cli.options import part_of, takes_fields
from datasets_cli.project.file import DATA
from datasets_cli.replay.storages.options import StorageOptions

if TYPE_CHECKING:
    from datasets_cli.project.declaration import DeclaredDataset
    from datasets_cli.replay.buffers.tensordict import TensorDictReplayBuffer
    from datasets_cli.replay.storages.dataset import DatasetStorage


@dataclass(frozen=True)
class DatasetCall(RootOptions, StorageOptions):
    """What ``open_dataset`` takes of a dataset.

    Args:
        id: ``family/name``; the family may be left out where the name is unique. With ``project``,
            the name of the table.
    """

    id: str


@dataclass(frozen=True)
class ProjectCall(RootOptions):
    """What ``open_dataset`` takes of data that a project declares."""

    id: str
    _: KW_ONLY
    project: str | os.PathLike[str]


@dataclass(frozen=True, kw_only=True)
class OpenCall(DatasetCall):
    """What ``open_dataset`` takes.

    Args:
        project: an ``rlds.toml``, or its folder, whose functions are imported.
    """

    project: str | os.PathLike[str] | None = None


@overload
@takes_fields(ProjectCall)
def open_dataset(call: ProjectCall) -> TensorDictReplayBuffer: ...


@overload
@takes_fields(DatasetCall)
def open_dataset(call: DatasetCall) -> DatasetStorage: ...


@takes_fields(OpenCall)
def open_dataset(call: OpenCall) -> DatasetStorage | TensorDictReplayBuffer:
    """Open the rows of an installed dataset, read-only; or the data that a project declares.

    Of a dataset the result is a storage: ``len`` counts the rows, ``get`` and ``run`` return copies
    of some rows as a TensorDict, ``column`` one key of all rows, ``offsets`` where trajectories
    begin; and every replay buffer takes it as its ``storage``. It is not an ``ExperienceReplay``,
    which downloads what is missing and draws batches: to open a dataset is to read its rows in
    their order, and batches have a class of another name.

    With ``project`` it is the buffer that a table ``[data.NAME]`` of ``rlds.toml`` declares: a
    dataset, or a view or a mixture of some, with its transforms; datasets that are missing are
    installed. See docs/declarations.md.

    Raises:
        DatasetNotInstalled: it is known, but not under this root.
        UnknownDataset: no recipe and no folder has that name.
        DamagedDataset: its files are not what its manifest says.
    """
    config, options = call.chosen_config(), part_of(call, StorageOptions)
    if call.project is None:
        from datasets_cli.experience.opening import open_rows  # with torch

        return open_rows(call.id, config, options)
    if options != StorageOptions():
        raise UsageError(
            "device, pin_memory, contiguous, text and columns are of a dataset; a project declares "
            f"its data in [{DATA}.{call.id}]."
        )
    # Mixtures, views and installing: of a dataset that is there they take longer than to open it.
    from datasets_cli.project.data import DataFile, open_declared

    return open_declared(call.id, DataFile(call.project), config.root, download=True).buffer


@dataclass(frozen=True)
class DeclaredCall(RootOptions):
    """What ``declared_datasets`` takes.

    Args:
        names: of tables ``[data.NAME]``; all of them by default.
        project: an ``rlds.toml``, or its folder, whose functions are imported.
        download: install datasets that are missing; fail instead by default.
    """

    names: str | Iterable[str] = field(
        default=(),
        metadata={
            **{"argument": True, "metavar": "NAME"},
            "help": "Tables [data.NAME]; all of them by default.",
        },
    )
    _: KW_ONLY
    project: str | os.PathLike[str] = field(
        default="rlds.toml", metadata={"metavar": "PATH", "help": "An rlds.toml, or its folder."}
    )
    download: bool = False


@takes_fields(DeclaredCall)
def declared_datasets(call: DeclaredCall) -> list[DeclaredDataset]:
    """Return what a project's declared data are, each with the digest that a paper can give.

    Raises:
        UsageError: there is no such file or table, or it cannot be made of the data.
        DatasetNotInstalled: a dataset is missing.
    """
    from datasets_cli.project.data import DataFile, open_declared

    root, file = call.chosen_config().root, DataFile(call.project)
    names = as_list(call.names) or file.declarations
    return [open_declared(name, file, root, download=call.download).described for name in names]
