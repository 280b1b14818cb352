"""What a format of other tools' files gives, and which formats there are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from datasets_cli.core.progress import Progress
from datasets_cli.errors import SourceError, UsageError, argument
from datasets_cli.exchange.steps import StepColumns
from datasets_cli.sources.disk import path_errors
from datasets_cli.sources.regular_file import kind_of
from datasets_cli.store.arrays import DatasetArrays
from datasets_cli.store.manifest import Manifest

NAMES = ("npz", "d4rl", "minari", "torchrl", "parquet", "csv", "hf")
"""The formats, in the order in which a path is tried; each is a file of this room."""
ALIASES = dict.fromkeys(("robomimic", "d3rlpy", "maniskill"), "d4rl")
"""Other names of HDF5 files, and the format that reads them."""
READ_ONLY = frozenset({"csv", "hf", *ALIASES})
"""Those that are not written, and whose files have no ``losses`` and ``write``."""
NEED_REWARDS = frozenset({"d4rl", "minari"})
"""Those whose readers need rewards."""

ColumnMap = Mapping[str, str]
"""Their column for each of our keys, written with dots; ``ends``, ``lengths`` and ``episode`` are
keys, too, that say where trajectories end."""


@dataclass(frozen=True)
class Recognised:
    """What a format finds at a path, before any row is read.

    Args:
        columns: what can be read: the shape of a step and the element type, as text, by name.
        map: the columns that have a meaning by their names.
        dropped: what cannot be kept, and why, by name.
        info: what the files say of the data, as values of JSON.
        ends: how the files themselves say where trajectories end; empty where a column must.
        notes: sentences that a person should see.
        format: what people call such a file, where that is one of ``ALIASES``.
        is_ring: whether the oldest row is at an unknown place, with the newest one before it.
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
    """A format, as the functions of its module."""

    def recognise(self, path: Path) -> Recognised | None:
        """Return what is at a path; None where it is not of this format.

        Raises:
            SourceError: it is of this format and damaged.
        """

    def blocks(self, path: Path, columns: ColumnMap) -> Iterator[StepColumns]:
        """Yield all steps in bounded blocks, ``TRAJECTORY_END`` among their columns.

        Raises:
            SourceError: bytes are damaged.
            UsageError: a column is not there, or two things that say where trajectories end differ.
        """

    def losses(self, manifest: Manifest) -> list[str]:
        """Return what of a dataset the format cannot hold, a sentence each."""

    def write(self, dataset: DatasetArrays, path: Path, progress: Progress, out: Path) -> str:
        """Write all rows to a new path; return the Python expression that opens them at ``out``.

        ``out`` is the path's name once it is whole.

        Raises:
            UsageError: the rows cannot be written in this format.
        """


def format_of(name: str, *, is_written: bool = False, columns: Sequence[str] = ()) -> Format:
    """Return the format of a name, which may read its columns under other names."""
    names = [each for each in (*NAMES, *ALIASES) if not (is_written and each in READ_ONLY)]
    if name not in names:
        what = "is read, and not written" if name in READ_ONLY else "is unknown"
        raise UsageError(
            f"{argument('format')}: {name!r} {what}. Expected one of {', '.join(names)}."
        )
    module: Any = import_module(f"datasets_cli.exchange.{ALIASES.get(name, name)}")
    if columns and name != "csv":
        raise UsageError(
            f"{argument('columns')} names the columns of a CSV file, and the format is {name}. "
            f"Leave it out; {argument('map')} says what a column is."
        )
    return module.Csv(columns) if columns else module  # type: ignore[no-any-return]


def recognised(path: Path, name: str | None, columns: Sequence[str] = ()) -> tuple[str, Recognised]:
    """Return the format of what is at a path, which may be told, and what it finds there."""
    tried = (name,) if name else ("csv",) if columns else NAMES
    with path_errors(path):
        if not (path.is_file() or path.is_dir()):  # a pipe or a device would be waited for
            found = f"is {kind_of(path.stat().st_mode)}" if path.exists() else "is not there"
            raise UsageError(f"{path} {found}. Give a regular file or a folder.")
        for each in tried:
            known = format_of(each, columns=columns).recognise(path)
            if known is not None and each in (*NAMES, known.format):
                return known.format or each, known
        names = [path.name, *(each.name for each in islice(path.rglob("*"), 10_000))]
    unread = ""
    if columns:
        unread = f"{argument('columns')} names the columns of a CSV file alone: leave it out. "
    elif any(".tfrecord" in name for name in names):
        unread = "TFRecord is not read: use tensorflow. "
    elif any(name.endswith(".parquet") for name in names[1:]):
        unread = "Parquet in several parts is not read: read one, or join them with pandas. "
    raise UsageError(
        f"{path} is of none of these formats: {', '.join(tried)}; docs/exchange.md describes them. "
        f"{unread}Arrays that another reader gives become a dataset by create_dataset()."
    )


def refuse_cut(path: Path, *endings: str) -> None:
    """Refuse a file that has the name of a format and not its bytes: it is cut off, or empty."""
    if path.is_file() and path.suffix.lower() in endings:
        raise SourceError(
            f"{path} is damaged: its {path.stat().st_size:,} bytes are no whole file of the format "
            "that its name says. It may be cut off: copy or make it again."
        )
