"""Import: files of another tool become a dataset."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.options import DRY_RUN, takes_fields
from datasets_cli.core.progress import Note
from datasets_cli.errors import SourceError, for_reader
from datasets_cli.exchange.dataset_writer import OwnOptions, count_steps, making, own_id, save_steps
from datasets_cli.exchange.flat import IMPORTED_FROM
from datasets_cli.exchange.format import ENDS, Recognised, format_of, recognised
from datasets_cli.exchange.mapping import as_options, chosen_map, skipped
from datasets_cli.install.options import InstalledDataset
from datasets_cli.schema.columns import TERMINATED, TRUNCATED, Key

Stats = dict[str, tuple[int, int, int]]
"""Size, modification time and inode of files by their names."""


def source_of(path: Path, before: Stats) -> dict[str, Any]:
    """Return name, bytes and sha256 of a file or a folder, which is unchanged since ``before``."""
    # The sha256 of a folder is the sha256 of the output of `sha256sum` for its sorted files.
    sha256 = _sha256(path) if path.is_file() else _folder_sha256(path, before)
    if stats_of(path) != before:
        raise SourceError(
            f"{path} changed while it was read.", path=path, advice="Import it again."
        )
    size = sum(size for size, *_ in before.values())
    name = path.name or path.resolve().name  # of "."
    return {"filename": name, "bytes": size, "sha256": sha256}


def _folder_sha256(path: Path, names: Iterable[str]) -> str:
    lines = (f"{_sha256(path / name)}  {name}\n" for name in names)
    return hashlib.sha256("".join(lines).encode(errors="surrogateescape")).hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def stats_of(path: Path) -> Stats:
    """Return size, modification time and inode of a file, or of all files in a folder."""
    found = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
    files = {f"./{each.relative_to(path).as_posix()}": each for each in found if each.is_file()}
    files = {path.name: path} if path.is_file() else files
    stats = ((name, files[name].stat()) for name in sorted(files, key=os.fsencode))
    return {name: (stat.st_size, stat.st_mtime_ns, stat.st_ino) for name, stat in stats}


@dataclass(frozen=True)
class ImportPlan(JsonForm):
    """The plan of an import.

    Args:
        path: the file or the folder.
        format: its format.
        id: the id of the new dataset.
        map: the column of each key; ``""`` for an omitted well-known key.
        columns: the columns of the files, those to read first, each with ``column``, ``key``,
            ``dtype``, ``shape`` (of a step) and ``skipped``, the reason why it is not read.
        ends: how the files mark the ends of trajectories; empty if a column of the map does.
        notes: sentences for the user.
    """

    JSON = "path format id map columns dropped ends notes"

    path: Path
    format: str
    id: str
    map: Mapping[str, str]
    columns: tuple[Mapping[str, str], ...]
    ends: str
    notes: tuple[str, ...] = ()

    @property
    def dropped(self) -> tuple[str, ...]:
        """A sentence for each column that is not read."""
        return tuple(f"{x['column']}: {x['skipped']}" for x in self.columns if x["skipped"])

    @property
    def names(self) -> dict[Key, str]:
        """The column of each key; empty unless their flags mark the ends of trajectories."""
        names = {tuple(key.split(".")): name for key, name in self.map.items() if name}
        has_flags = {TERMINATED, TRUNCATED} <= names.keys()
        has_ends = self.ends or any((end,) in names for end in ENDS)
        return names if has_flags and not has_ends else {}

    @property
    def options(self) -> str:
        """The map as command-line options or as a Python argument."""
        return for_reader(as_options(self.map))


@dataclass(frozen=True)
class ImportCall(OwnOptions):
    """The arguments of ``import_dataset``.

    Args:
        path: file or folder of another tool.
        id: ``family/name``, with a family that no recipe has.
        format: the format of the files; by default the first that recognises them.
        map: the column of each key, such as ``{"observation": "obs"}``, or texts such as
            ``"observation=obs"``; it overrides well-known names, and an empty column leaves a key
            out. ``ends``, ``lengths`` or ``episode`` name the column that ends trajectories.
        columns: the column names of a CSV file whose first line lacks them or repeats one:
            ``["x_0..16", "a", "reward"]`` or ``"x_0..16,a,reward"``, where ``x_0..16`` names
            17 columns. A first line of numbers is a step; any other is replaced.
        dry_run: read and check all rows without writing.
    """

    path: str | os.PathLike[str] = field(
        metadata={
            "argument": True,
            "metavar": "PATH",
            "help": "File or folder written by another tool.",
        }
    )
    id: str = field(
        metadata={
            "flag": "--name",
            "metavar": "NAME",
            "help": "Id of the new dataset, family/name.",
        }
    )
    _: KW_ONLY
    format: str | None = field(
        default=None,
        metadata={
            "flag": "--from",
            "metavar": "FORMAT",
            "complete": "formats",
            "help": "Format of the file.",
            "default": "the first that recognises it",
        },
    )
    map: Mapping[str, str] | Iterable[str] | None = field(
        default=None,
        metadata={"metavar": "KEY=COLUMN", "help": "Read a key from this column; may be repeated."},
    )
    columns: str | Iterable[str] = field(
        default=(),
        metadata={
            "typed": str,
            "metavar": "NAMES",
            "help": "Column names that the first line of a CSV file lacks, e.g. x_0..16,a,reward.",
        },
    )
    dry_run: bool = field(default=False, metadata=DRY_RUN)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the columns as a tuple."""
        texts = self.columns.split(",") if isinstance(self.columns, str) else self.columns
        return tuple(str(name).strip() for name in texts)


@takes_fields(ImportCall)
def plan_import(call: ImportCall) -> ImportPlan:
    """Return what ``import_dataset`` would do with the same arguments; no row is read.

    Raises:
        UsageError: the format is unknown, a column such as the action is missing, or the ends of
            trajectories are unknown.
        SourceError: the files are damaged.
    """
    return _planned(call)[0]


def _planned(call: ImportCall) -> tuple[ImportPlan, Mapping[str, Any]]:
    """Return the plan, and the metadata in the files."""
    call.chosen_config()  # refuses two roots, as the import would
    path, id = Path(call.path), own_id(call.id)
    name, found = recognised(path, call.format, call.names)
    chosen = chosen_map(found, call.map)
    columns = tuple(_columns(found, chosen))
    return ImportPlan(path, name, id, chosen, columns, found.ends, found.notes), found.info


def _columns(found: Recognised, chosen: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yield the entry of each column in the plan."""
    reasons = dict.fromkeys(filter(None, chosen.values()), "") | skipped(found, chosen)
    for name, reason in reasons.items():
        dtype, bracket, shape = found.columns.get(name, "").partition(" [")
        keys = ", ".join(key for key, each in chosen.items() if each == name)
        row = {"column": name, "key": keys, "dtype": dtype, "shape": bracket[1:] + shape}
        yield {**row, "skipped": reason}


@takes_fields(ImportCall)
def import_dataset(call: ImportCall) -> InstalledDataset:
    """Import files of another tool as an installed dataset.

    The keys of columns come from well-known names and from ``map``. The ends of trajectories are
    never guessed.

    Returns:
        The dataset. With ``dry_run`` its state is ``"not installed"`` and its size 0.

    Raises:
        UsageError: as in ``plan_import``; or values are missing or have an invalid dtype or shape,
            or the id is installed with other data.
        SourceError: the files are damaged.
    """
    plan, metadata = _planned(call)
    read = {key: name for key, name in plan.map.items() if name}
    steps = format_of(plan.format, columns=call.names).blocks(plan.path, read)
    if call.dry_run:
        return count_steps(plan.id, steps, call)
    with making(plan.id, call) as progress:
        for note in (*(f"not read: {lost}" for lost in plan.dropped), *plan.notes):
            if call.map != plan.map:  # a map that equals the plan was confirmed
                progress(Note(f"{plan.id}: {note}"))
        info = {**metadata, **(call.info or {}), IMPORTED_FROM: plan.format}
        source = partial(source_of, plan.path, stats_of(plan.path))
        options = replace(call, info=info)
        return save_steps(plan.id, steps, options, progress, source, plan.names)
