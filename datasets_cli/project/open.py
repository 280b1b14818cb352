"""The rows of an installed dataset, and the data that a project declares: opened, told, added."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from datasets_cli.catalogue.names import OWN, resolve
from datasets_cli.catalogue.selection import as_list
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
    """What ``open_dataset`` takes of a dataset.

    Args:
        id: ``family/name``; the family may be left out where the name is unique. Or the folder of
            a dataset, as ``ExperienceReplay`` takes it. With ``project``, the name of the table.
    """

    id: str | os.PathLike[str]


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

    return open_declared(str(call.id), DataFile(call.project), config.root, download=True).buffer


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
    """Return what a project's declared data are, each with the digest that a paper can give.

    Raises:
        UsageError: there is no such file or table, or it cannot be made of the data.
        DatasetNotInstalled: a dataset is missing.
        PartialFailure: that is so of some of several; ``results`` has the others.
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
    """What ``add_data`` takes.

    Args:
        name: of the table, and of the data.
        dataset: an id, or the file of a view.
        where: a condition on trajectories, such as ``return > 1000``; those for which it holds are
            taken.
        split: fractions of the trajectories, such as ``0.9,0.1``, which are drawn at random.
        part: of the split, from 0 on, that the table is of.
        seed: of the split.
        project: an ``rlds.toml``, or its folder; made where it is not there.
    """

    name: str = field(
        metadata={"argument": True, "metavar": "NAME", "help": "Name of the table and of its data."}
    )
    dataset: str = field(
        metadata={
            "metavar": "ID",
            "complete": "known_ids",
            "help": "Id of a dataset, or path of a view file.",
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
        name: of the table.
        path: of the file.
        text: of the table.
    """

    name: str
    path: Path
    text: str


@takes_fields(AddCall)
def add_data(call: AddCall) -> AddedData:
    """Write a table ``[data.NAME]`` to the end of ``rlds.toml``; all else in the file stays.

    Raises:
        UsageError: the file has that table, or is no such file; or the table would not be one.
    """
    from datasets_cli.replay.queries.conditions import parse_condition  # with torch
    from datasets_cli.replay.queries.views import NAMED, preset_of

    config, path = call.chosen_config(), data_file(call.project)
    if not call.dataset:
        raise UsageError(f"{argument('dataset')} is empty text; expected an id.")
    # What is derived or recorded may be made later.
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
        why = "is there already" if call.name in known else "is no name of data"
        letters = "letters, digits, _ and -, and not add"
        raise UsageError(f"{call.name!r} {why}, in {path}. Choose another name: {letters}.")
    lines = [f"{key} = {toml(value)}" for key, value in table.items()]
    added = "\n".join([f"[{DATA}.{toml_name(call.name)}]", *lines, ""])
    expected = {**known, call.name: table}
    append(path, added, lambda text: parse_tables(text, path)[DATA] == expected)
    return AddedData(call.name, path, added)


def _views(call: AddCall) -> dict[str, Any]:
    """Return the key ``views``, where rows are chosen; names in the condition are not looked up."""
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
                "part, from 0 on."
            )
        views.append({"split": fractions, "part": call.part, "seed": call.seed})
    elif call.part or call.seed:
        raise UsageError(f"{argument('part')} and {argument('seed')} need {argument('split')}.")
    return {"views": views} if views else {}
