"""Some rows of a dataset in their order, read without torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

from datasets_cli.catalogue.names import InstalledId
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.options import check_numbers, takes_fields
from datasets_cli.core.quantities import counted
from datasets_cli.core.system_errors import check_memory
from datasets_cli.errors import OutOfRange, argument
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
    """The arguments of ``peek``.

    Args:
        n: number of rows; fewer at the end of the dataset or the trajectory.
        start: first row, counted from the start of ``trajectory`` if that is set.
        trajectory: number of the trajectory to read.
        columns: dotted keys, separated by commas; ``next`` selects the whole group. All columns by
            default.
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
    """The rows of one column.

    Args:
        key: the key of the column.
        dtype: the dtype; ``"text"`` for text.
        shape: the shape of a row.
        values: an array ``[n, *shape]`` with a numpy dtype; nested lists of str for text.
    """

    key: Key
    dtype: str
    shape: tuple[int, ...]
    values: Any

    @property
    def name(self) -> str:
        """The key with dots, ``next.reward``."""
        return show_key(self.key)

    @property
    def is_frame(self) -> bool:
        """Whether a row is a picture, shown as dtype and shape."""
        return is_frame(self.dtype, self.shape)

    def json_fields(self) -> dict[str, Any]:
        """Return the JSON form, in which NaN and infinite numbers are text."""
        listed = self.values if self.dtype == TEXT else self.values.tolist()
        values = json.loads(json.dumps(listed, default=str), parse_constant=str)
        return {"key": self.key, "dtype": self.dtype, "shape": self.shape, "values": values}


@dataclass(frozen=True)
class PeekedRows(JsonForm):
    """Consecutive rows of a dataset.

    Args:
        id: the full id.
        num_transitions: the number of transitions of the dataset.
        start: the number of the first row.
        trajectories: the number of the trajectory of each row.
        columns: the columns in the requested order.
    """

    id: str
    num_transitions: int
    start: int
    trajectories: tuple[int, ...]
    columns: tuple[PeekedColumn, ...]


@takes_fields(PeekCall)
def peek(call: PeekCall) -> PeekedRows:
    """Return some rows of an installed dataset as numpy arrays, without importing torch.

    Raises:
        DatasetNotInstalled: the dataset is not installed.
        UnknownDataset: no recipe and no folder has this name.
        UsageError: a row, trajectory or column does not exist, or the rows need too much memory.
        DamagedDataset: its files differ from its manifest.
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
    """Return the first row and the end."""
    rows, of = range(len(dataset)), dataset.id
    if (number := call.trajectory) is not None:
        rows, of = trajectory_rows(dataset, number), f"trajectory {number} of {of}"
    check_below("start", call.start, len(rows), "transition", of)
    rows = rows[call.start : call.start + call.n]
    return rows.start, rows.stop


def trajectory_rows(dataset: DatasetArrays, number: int) -> range:
    """Return the rows of a trajectory of a dataset."""
    check_below("trajectory", number, dataset.num_trajectories, "trajectory", dataset.id)
    return range(*dataset.starts[number : number + 2].tolist())


def check_below(name: str, number: int, count: int, noun: str, of: str) -> None:
    """Reject a number that is not below the count of the rows or trajectories."""
    if number >= count:
        known = f"expected 0 to {count - 1:,}: {of} has {counted(count, noun)}."
        raise OutOfRange(
            f"{argument(name)} is {number:,}; {known}",
            argument=name,
            expected=range(count),
            found=number,
        )


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
        # None stands for pairs of numbers packed in one byte.
        return PeekedColumn(key, dtype, shape, rows[key].view("u1") if values is None else values)

    return tuple(map(column, keys))
