"""Opening installed datasets and declared data; listing and adding declarations."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from datasets_cli.catalogue.names import OWN, as_list, resolve
from datasets_cli.config import RootOptions, read_user_text
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.options import check_numbers, part_of, takes_fields
from datasets_cli.errors import (
    PartialFailure,
    RldsError,
    UsageError,
    argument,
    arguments_named,
    as_in_python,
    wrong_value,
)
from datasets_cli.install.find import id_without_family, is_installed
from datasets_cli.project.declaration import declaration_of
from datasets_cli.project.file import (
    DATA,
    append,
    data_file,
    data_tables,
    parse_tables,
    toml,
    toml_name,
)
from datasets_cli.replay.storages.options import StorageOptions
from datasets_cli.store.cache_root import CacheRoot

if TYPE_CHECKING:
    from datasets_cli.project.declaration import DeclaredDataset
    from datasets_cli.replay.buffer.tensordict import TensorDictReplayBuffer
    from datasets_cli.replay.storages.dataset import DatasetStorage


@dataclass(frozen=True)
class DatasetCall(RootOptions, StorageOptions):
    """The arguments of ``open_dataset`` for a dataset.

    Args:
        id: ``family/name``, or the name alone if it is unique; or the folder of a dataset. With
            ``project``, the name of the table.
    """

    id: str | os.PathLike[str]


@dataclass(frozen=True)
class ProjectCall(RootOptions):
    """The arguments of ``open_dataset`` for declared data."""

    id: str
    _: KW_ONLY
    project: str | os.PathLike[str]


@dataclass(frozen=True, kw_only=True)
class OpenCall(DatasetCall):
    """The arguments of ``open_dataset``.

    Args:
        project: an ``rlds.toml``, or its folder; functions of that folder are imported.
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
    """Open the rows of an installed dataset, read-only; or the declared data of a project.

    The result for a dataset is a storage: ``len`` counts the rows, ``get`` and ``run`` return
    copies of rows as a TensorDict, ``column`` returns one key of all rows, and ``offsets`` the
    first rows of trajectories. Every replay buffer accepts it as its ``storage``. To download a
    missing dataset and draw batches, use ``ExperienceReplay``.

    With ``project`` the result is the buffer of a table ``[data.NAME]`` of ``rlds.toml``: a
    dataset, a view or a mixture, with its transforms. Missing datasets are installed. See
    docs/declarations.md.

    Raises:
        DatasetNotInstalled: the dataset is known, but not installed under this root.
        UnknownDataset: no recipe and no folder has that name.
        DamagedDataset: the files differ from the manifest.
    """
    config, options = call.chosen_config(), part_of(call, StorageOptions)
    if call.project is None:
        from datasets_cli.experience.opening import open_rows  # with torch

        return open_rows(call.id, config, options)
    if options != StorageOptions():
        raise UsageError(
            "device, pin_memory, contiguous, text and columns are arguments for a dataset; a "
            f"project declares its data in [{DATA}.{call.id}].",
            argument="project",
            found=call.project,
        )
    # Imported late: mixtures and installing take longer to import than a dataset to open.
    from datasets_cli.project.data import DataFile, open_declared

    return open_declared(str(call.id), DataFile(call.project), config.root, download=True).buffer


@dataclass(frozen=True)
class DeclaredCall(RootOptions):
    """The arguments of ``declared_datasets``.

    Args:
        names: names of tables ``[data.NAME]``; all tables by default.
        project: an ``rlds.toml``, or its folder; functions of that folder are imported.
        download: install missing datasets; without it, they are an error.
    """

    names: str | Iterable[str] = field(
        default=(),
        metadata={
            **{"argument": True, "metavar": "NAME"},
            "help": "Names of [data.NAME] tables; all of them by default.",
        },
    )
    _: KW_ONLY
    project: str | os.PathLike[str] = field(
        default="rlds.toml",
        metadata={"metavar": "PATH", "help": "An rlds.toml file or its folder."},
    )
    download: bool = field(
        default=False, metadata={"help": "Install declared datasets that are missing."}
    )


@takes_fields(DeclaredCall)
def declared_datasets(call: DeclaredCall) -> list[DeclaredDataset]:
    """Return a project's declared data, each with a digest to cite.

    Raises:
        UsageError: the file or the table does not exist, or does not fit the data.
        DatasetNotInstalled: a dataset is missing.
        PartialFailure: some of several failed; ``results`` has the others.
    """
    root, path = call.chosen_config().root, data_file(call.project)
    names = as_list(call.names) or [*data_tables(path)]  # before torch is imported
    from datasets_cli.project.data import DataFile, open_declared

    file, results, failed = DataFile(path), [], {}
    for name in names:
        try:
            results.append(open_declared(name, file, root, download=call.download).described)
        except RldsError as error:
            if not names[1:]:
                raise
            failed[name] = str(error)
    if failed:
        partial_failure = PartialFailure.of([*failed], len(names), results)
        partial_failure.append("".join(f"\n  {why}" for why in failed.values()))
        raise partial_failure
    return results


@dataclass(frozen=True)
class AddCall(RootOptions):
    """The arguments of ``add_data``.

    Args:
        name: name of the table.
        dataset: id of the dataset.
        where: keep only trajectories that match, such as ``return > 1000``.
        split: fractions of the trajectories, such as ``0.9,0.1``, chosen at random.
        part: number of the part of the split, 0 for the first.
        seed: seed of the split.
        project: an ``rlds.toml``, or its folder; created if missing.
    """

    name: str = field(metadata={"argument": True, "metavar": "NAME", "help": "Name of the table."})
    dataset: str = field(
        metadata={
            "metavar": "ID",
            "complete": "known_ids",
            "help": "Id of a dataset.",
        }
    )
    _: KW_ONLY
    where: str | None = field(
        default=None,
        metadata={
            "metavar": "CONDITION",
            "help": "Keep only trajectories that match, e.g. 'return > 1000'.",
        },
    )
    split: str | Iterable[float] | None = field(
        default=None,
        metadata={
            "metavar": "FRACTIONS",
            "typed": str,
            "help": "Fractions of the trajectories for a random split, e.g. 0.9,0.1.",
        },
    )
    part: int = field(
        default=0, metadata={"least": 0, "help": "Part of the split to use, counted from 0."}
    )
    seed: int = field(default=0, metadata={"least": 0, "help": "Seed of the split."})
    project: str | os.PathLike[str] = field(
        default="rlds.toml",
        metadata={"metavar": "PATH", "help": "An rlds.toml file or its folder."},
    )

    def __post_init__(self) -> None:
        check_numbers(self)


@dataclass(frozen=True)
class AddedData(JsonForm):
    """A table that was written.

    Args:
        name: name of the table.
        path: path of the file.
        text: text of the table.
    """

    name: str
    path: Path
    text: str


@takes_fields(AddCall)
def add_data(call: AddCall) -> AddedData:
    """Append a table ``[data.NAME]`` to ``rlds.toml``; the rest of the file stays.

    Raises:
        UsageError: the file already has that table or is not valid, or an argument is wrong.
    """
    from datasets_cli.replay.queries.conditions import parse_condition  # with torch
    from datasets_cli.replay.queries.views import NAMED, preset_of

    config, path = call.chosen_config(), data_file(call.project)
    if not call.dataset:
        raise wrong_value("dataset", "an id", call.dataset)
    # Derived and recorded datasets may be made later.
    if call.dataset.partition("/")[0] not in OWN:
        root = CacheRoot(config.root)
        if not is_installed(root, call.dataset) and not id_without_family(call.dataset, root):
            resolve(call.dataset, root, unlisted=True)
    if call.where:
        (preset_of if NAMED.match(call.where) else parse_condition)(call.where)
    table: dict[str, Any] = {"dataset": call.dataset, **_views(call)}
    with arguments_named(as_in_python):
        declaration_of(table)
    known = parse_tables(read_user_text(path) or "", path).get(DATA, {})
    if not re.fullmatch(r"[\w-]+", call.name) or call.name == "add" or call.name in known:
        why = f"is already in {path}" if call.name in known else "is not a valid name"
        raise UsageError(
            f"{call.name!r} {why}.",
            argument="name",
            path=path,
            found=call.name,
            advice="Choose another name: letters, digits, _ and -, and not add.",
        )
    lines = [f"{key} = {toml(value)}" for key, value in table.items()]
    added = "\n".join([f"[{DATA}.{toml_name(call.name)}]", *lines, ""])
    expected = {**known, call.name: table}
    append(path, added, lambda text: parse_tables(text, path)[DATA] == expected)
    return AddedData(call.name, path, added)


def _views(call: AddCall) -> dict[str, Any]:
    """Return the key ``views``, if trajectories are chosen."""
    views: list[dict[str, Any]] = [] if call.where is None else [{"filter": call.where}]
    if call.split is not None:
        parts = call.split.split(",") if isinstance(call.split, str) else call.split
        try:
            fractions = [float(part) for part in parts]
        except ValueError:
            fractions = []
        num_parts = len(fractions) + (sum(fractions) < 1 - 1e-9)
        is_split = fractions and min(fractions) >= 0 and sum(fractions) <= 1 + 1e-9
        if not is_split or not 0 <= call.part < num_parts:
            raise UsageError(
                f"{argument('split')} is {call.split!r} and {argument('part')} {call.part}; "
                "expected fractions that sum up to at most 1, such as 0.9,0.1, and the number of a "
                "part, 0 for the first.",
                argument="split",
                found=call.split,
            )
        views.append({"split": fractions, "part": call.part, "seed": call.seed})
    elif call.part or call.seed:
        raise UsageError(
            f"{argument('part')} and {argument('seed')} need {argument('split')}.",
            argument="split",
        )
    return {"views": views} if views else {}
