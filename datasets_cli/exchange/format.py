"""The file formats of other tools, and the functions that each of them has."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from datasets_cli.catalogue.entries import load_recipe
from datasets_cli.core.progress import Progress
from datasets_cli.errors import SourceError, UsageError, WrongRows, argument
from datasets_cli.exchange.steps import StepColumns
from datasets_cli.install.fetch import read_blocks, source_errors
from datasets_cli.recipe import Source
from datasets_cli.schema.columns import TRAJECTORY_END, show_key
from datasets_cli.schema.texts import LANGUAGE, SPLIT, TEXT, as_text, is_text
from datasets_cli.sources.disk import path_errors
from datasets_cli.sources.regular_file import kind_of
from datasets_cli.store.arrays import DatasetArrays
from datasets_cli.store.manifest import Manifest

NAMES = ("npz", "d4rl", "minari", "rlds", "torchrl", "parquet", "csv", "hf")
"""The formats in the order in which they are tried; each is a module of this package."""
ALIASES = dict.fromkeys(("robomimic", "d3rlpy", "maniskill"), "d4rl")
"""Other layouts of HDF5 files, and the format that reads them."""
READ_ONLY = frozenset({"csv", "hf", "rlds", *ALIASES})
"""Formats that are not written: their modules have no ``losses`` and ``write``."""
NEED_REWARDS = frozenset({"d4rl", "minari"})
"""Formats whose readers need rewards."""

ENDS = ("ends", "lengths", "episode")
"""The keys of columns that mark the ends of trajectories."""
MOST_INFO_BYTES = 100_000
"""The size of metadata of a recipe that an import keeps."""

ColumnMap = Mapping[str, str]
"""The file's column for each key, written with dots. The keys ``ends``, ``lengths`` and ``episode``
are for columns that mark the ends of trajectories."""


@dataclass(frozen=True)
class Recognised:
    """The columns and metadata at a path, read before any row.

    Args:
        columns: the dtype and the shape of a step, as text, of each column that can be read.
        map: the column of each key, guessed by the names of the columns.
        dropped: the reason for each column that cannot be read.
        info: the metadata in the files, as JSON values.
        ends: how the files mark the ends of trajectories; empty if a column does.
        notes: sentences for the user.
        format: the usual name of such a file, if it is one of ``ALIASES``.
        is_ring: whether the rows are a ring buffer whose oldest row is unknown.
    """

    columns: Mapping[str, str]
    map: ColumnMap
    dropped: Mapping[str, str] = field(default_factory=dict)
    info: Mapping[str, Any] = field(default_factory=dict)
    ends: str = ""
    notes: tuple[str, ...] = ()
    format: str = ""
    is_ring: bool = False


class Format(Protocol):
    """The functions of a format's module."""

    def recognise(self, path: Path) -> Recognised | None:
        """Return the columns at a path; None for a path of another format.

        Raises:
            SourceError: the file is damaged.
        """

    def blocks(self, path: Path, columns: ColumnMap) -> Iterator[StepColumns]:
        """Yield all steps in bounded blocks, ``TRAJECTORY_END`` among their columns.

        Raises:
            SourceError: the file is damaged.
            UsageError: a column is missing, or two columns of trajectory ends differ.
        """

    def losses(self, manifest: Manifest) -> list[str]:
        """Return a sentence for each column or metadata that the format cannot store."""

    def write(self, dataset: DatasetArrays, path: Path, progress: Progress, out: Path) -> str:
        """Write all rows to a new path; return the Python expression that opens them at ``out``.

        ``out`` is the final path, to which the complete file is renamed.

        Raises:
            UsageError: the rows cannot be written in this format.
        """


def format_of(name: str, *, is_written: bool = False, columns: Sequence[str] = ()) -> Format:
    """Return the format of a name; ``columns`` names the columns of a CSV file."""
    names = [each for each in (*NAMES, *ALIASES) if not (is_written and each in READ_ONLY)]
    if name not in names:
        problem = "can be read, but not written" if name in READ_ONLY else "does not exist"
        raise UsageError(
            f"The format {name!r} {problem}. Expected one of: {', '.join(names)}.",
            argument="format",
            expected=names,
            found=name,
        )
    module: Any = import_module(f"datasets_cli.exchange.{ALIASES.get(name, name)}")
    if columns and name != "csv":
        raise UsageError(
            f"{argument('columns')} names the columns of a CSV file, but the format is {name}.",
            argument="columns",
            expected="csv",
            found=name,
            advice=f"Use {argument('map')} to map the columns of other formats to keys.",
        )
    return module.Csv(columns) if columns else module  # type: ignore[no-any-return]


def recognised(path: Path, name: str | None, columns: Sequence[str] = ()) -> tuple[str, Recognised]:
    """Return the format of the files at a path, and their columns; ``name`` fixes the format."""
    candidates = (name,) if name else ("csv",) if columns else NAMES
    with path_errors(path):
        if not (path.is_file() or path.is_dir()):  # opening a pipe or a device would block
            kind = kind_of(path.stat().st_mode) if path.exists() else None
            problem = f"is {kind}" if kind else "does not exist"
            raise UsageError(
                f"{path} {problem}. Expected a regular file or a folder.",
                argument="path",
                path=path,
                expected="a regular file or a folder",
                found=kind,
            )
        for each in candidates:
            known = format_of(each, columns=columns).recognise(path)
            if known is not None and each in (*NAMES, known.format):
                return known.format or each, replace(known, map=_texts(known) | {**known.map})
        names = [path.name, *(each.name for each in islice(path.rglob("*"), 10_000))]
    hint = ""
    if columns:
        hint = f"Leave {argument('columns')} out: it is only for CSV files. "
    elif any(".tfrecord" in name for name in names):
        hint = (
            "TFRecord files are read from the folder of their version, which also has "
            "features.json and dataset_info.json. "
        )
    elif any(name.endswith(".parquet") for name in names[1:]):
        hint = "A dataset in several Parquet files is not supported: join them with pandas. "
    raise UsageError(
        f"{path} is not a file of these formats: {', '.join(candidates)}.",
        argument="path",
        path=path,
        expected=[*candidates],
        advice=f"{hint}See docs/exchange.md. create_dataset() stores arrays of any other reader.",
    )


def _texts(found: Recognised) -> dict[str, str]:
    """Return the map of the columns of text that have the names of the families' keys."""
    keys = (show_key(key) for key in (SPLIT, LANGUAGE))
    return {key: key for key in keys if found.columns.get(key) == f"{TEXT} []"}


def reject_truncated(path: Path, *suffixes: str) -> None:
    """Reject a file whose suffix is of a format but whose bytes are not."""
    if path.is_file() and path.suffix.lower() in suffixes:
        size = path.stat().st_size
        raise SourceError(
            f"{path} is damaged: its {size:,} bytes are not a complete {path.suffix} file.",
            path=path,
            found=size,
            advice="Copy or write it again: it may be truncated.",
        )


def recognise_source(path: Path, family: str, source: Source, where: str, ends: str) -> Recognised:
    """Return the columns of a family's files, read from their first steps.

    ``where`` names the file of the metadata, and ``ends`` says how trajectories end.
    """
    recipe = load_recipe(family)
    with source_errors(path.name):
        description = recipe.describe(source)
        first = next(recipe.blocks(source), None)
    if first is None:
        raise WrongRows(f"{path.name} has no steps. Expected one episode or more.", path=path)
    metadata = description.metadata
    large = {key for key, value in metadata.items() if len(json.dumps(value)) > MOST_INFO_BYTES}
    names = [*map(show_key, first.columns)]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise WrongRows(
            f"{path.name} has two columns named {twice}.",
            path=path,
            key=twice,
            advice="Rename one.",
        )
    columns = {
        show_key(key): f"{TEXT if is_text(rows) else rows.dtype} {list(rows.shape[1:])}"
        for key, rows in first.columns.items()
    }
    del columns[show_key(TRAJECTORY_END)]
    return Recognised(
        columns,
        {name: name for name in columns},
        {f"{key} of {where}": f"it has over {MOST_INFO_BYTES:,} bytes" for key in large},
        {key: value for key, value in metadata.items() if key not in large},
        ends,
        description.notes,
    )


def source_blocks(
    path: Path, family: str, source: Source, columns: ColumnMap, ends: str
) -> Iterator[StepColumns]:
    """Yield the chosen columns of a family's files; see ``Format.blocks``."""
    if mapped := [key for key in ENDS if key in columns]:
        raise UsageError(
            f"{argument('map')} {mapped[0]}: {ends}.",
            argument="map",
            key=mapped[0],
            advice="Leave it out.",
        )
    for block in read_blocks(path.name, load_recipe(family).blocks(source)):
        names = {show_key(key): key for key in block.columns}
        steps = {TRAJECTORY_END: block.columns[TRAJECTORY_END]}
        for name, theirs in columns.items():
            key, rows = names.get(name, tuple(name.split("."))), block.columns[names[theirs]]
            steps[key] = as_text(key, rows) if is_text(rows) else rows
        yield steps
