"""Some rows of a dataset in their order, read without torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

from datasets_cli.catalogue.selection import InstalledId
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.options import check_numbers, takes_fields
from datasets_cli.core.quantities import counted
from datasets_cli.core.system_errors import check_memory
from datasets_cli.errors import UsageError, argument
from datasets_cli.install.find import open_installed
from datasets_cli.preprocessing.columns import KnownColumns
from datasets_cli.preprocessing.pipeline import texts_of
from datasets_cli.schema.columns import Column, Key, show_key
from datasets_cli.schema.texts import TEXT
from datasets_cli.store.layouts.records import is_frame

if TYPE_CHECKING:
    from datasets_cli.store.arrays import DatasetArrays


@dataclass(frozen=True)
class PeekCall(InstalledId):
    """What ``peek`` takes.

    Args:
        n: how many rows; fewer where the dataset or the trajectory ends.
        start: the first row, counted from that of the trajectory where one is given.
        trajectory: only rows of the trajectory of this number.
        columns: keys with dots, and commas between them, groups such as ``next`` whole; by default
            all of them.
    """

    _: KW_ONLY
    n: int = field(
        default=5, metadata={"least": 1, "flag": ("-n", "--num"), "help": "Number of rows to show."}
    )
    start: int = field(
        default=0,
        metadata={
            "least": 0,
            "help": "First row to show, counted from the start of --trajectory if that is set.",
        },
    )
    trajectory: int | None = field(
        default=None,
        metadata={"least": 0, "metavar": "K", "help": "Show only rows of trajectory K."},
    )
    columns: str | Sequence[str | tuple[str, ...]] = field(
        default=(),
        metadata={
            "metavar": "KEYS",
            "help": (
                "Dotted keys of the columns to show, separated by commas; next selects the whole "
                "group."
            ),
            "default": "all of them",
        },
    )

    def __post_init__(self) -> None:
        check_numbers(self)


@dataclass(frozen=True)
class PeekedColumn(JsonForm):
    """Rows of one column.

    Args:
        key: its key.
        dtype: its element type; ``"text"`` of text.
        shape: of a row.
        values: an array ``[n, *shape]``, in a type that numpy has; of text nested lists of str.
    """

    key: Key
    dtype: str
    shape: tuple[int, ...]
    values: Any

    @property
    def name(self) -> str:
        """Its key as people write it, ``next.reward``."""
        return show_key(self.key)

    @property
    def is_frame(self) -> bool:
        """Whether a row is a picture, of which people read type and shape."""
        return is_frame(self.dtype, self.shape)

    def json_fields(self) -> dict[str, Any]:
        """Return the form; NaN and infinite numbers, which JSON does not have, are text there."""
        listed = self.values if self.dtype == TEXT else self.values.tolist()
        values = json.loads(json.dumps(listed, default=str), parse_constant=str)
        return {"key": self.key, "dtype": self.dtype, "shape": self.shape, "values": values}


@dataclass(frozen=True)
class PeekedRows(JsonForm):
    """Rows of a dataset, one after the other.

    Args:
        id: the full id.
        num_transitions: rows of the dataset.
        start: which of them is the first here.
        trajectories: of each row the number of its trajectory.
        columns: what was read, in the order that was asked for.
    """

    id: str
    num_transitions: int
    start: int
    trajectories: tuple[int, ...]
    columns: tuple[PeekedColumn, ...]


@takes_fields(PeekCall)
def peek(call: PeekCall) -> PeekedRows:
    """Return some rows of an installed dataset as arrays of numpy; torch is not imported.

    Raises:
        DatasetNotInstalled: it is known, but not under this root.
        UnknownDataset: no recipe and no folder has that name.
        UsageError: there is no such row, trajectory or column, or no memory for so many rows.
        DamagedDataset: its files are not what its manifest says.
    """
    from datasets_cli.schema.trajectories import numbers_of  # with numpy

    dataset = open_installed(call.id, call.chosen_config())
    start, stop = _rows(call, dataset)
    known = KnownColumns(dataset.manifest)
    named = texts_of("columns", call.columns)
    keys = dict.fromkeys(key for text in named for key in known.of(text, "columns"))
    return PeekedRows(
        id=dataset.id,
        num_transitions=len(dataset),
        start=start,
        trajectories=tuple(numbers_of(dataset.starts, start, stop).tolist()),
        columns=_columns(dataset, [*keys] or known.keys, start, stop),
    )


def _rows(call: PeekCall, dataset: DatasetArrays) -> tuple[int, int]:
    """Return the first row, and one more than the last."""
    rows, of = range(len(dataset)), dataset.id
    if (number := call.trajectory) is not None:
        rows, of = trajectory_rows(dataset, number), f"trajectory {number} of {of}"
    check_below("start", call.start, len(rows), "row", of)
    rows = rows[call.start : call.start + call.n]
    return rows.start, rows.stop


def trajectory_rows(dataset: DatasetArrays, number: int) -> range:
    """Return the rows of a trajectory of a dataset."""
    check_below("trajectory", number, dataset.num_trajectories, "trajectory", dataset.id)
    return range(*dataset.starts[number : number + 2].tolist())


def check_below(name: str, number: int, count: int, noun: str, of: str) -> None:
    """Refuse a number that is not below a count of things that something has."""
    if number >= count:
        known = f"expected 0 to {count - 1:,}: {of} has {counted(count, noun)}."
        raise UsageError(f"{argument(name)} is {number:,}; {known}")


def _columns(
    dataset: DatasetArrays, keys: Sequence[Key], start: int, stop: int
) -> tuple[PeekedColumn, ...]:
    """Return the rows of some columns."""
    from datasets_cli.store.arrays import plain_numbers

    about = {column.key: column for column in dataset.manifest.all_columns if column.key in keys}
    row_bytes = sum(each.row_bytes for each in about.values() if isinstance(each, Column))
    check_memory((stop - start) * row_bytes, dataset.id)
    rows = dataset.arrays_of(frozenset(keys)).run(start, stop)

    def column(key: Key) -> PeekedColumn:
        dtype, shape = about[key].dtype, about[key].shape
        if dtype == TEXT:
            return PeekedColumn(key, dtype, shape, rows[key].tolist())
        values = plain_numbers(rows[key])
        # Where None: pairs of numbers in one byte, as they are stored.
        return PeekedColumn(key, dtype, shape, rows[key].view("u1") if values is None else values)

    return tuple(map(column, keys))
