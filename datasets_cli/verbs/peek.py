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
from datasets_cli.errors import OutOfRange, Unsupported, argument
from datasets_cli.install.find import open_installed
from datasets_cli.preprocessing.columns import KnownColumns
from datasets_cli.preprocessing.pipeline import texts_of
from datasets_cli.schema.columns import Key, final_columns, show_key
from datasets_cli.schema.texts import TEXT, AnyColumn
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
        final: read final steps, the recorded steps that are not transitions, instead of rows.
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
    final: bool = field(
        default=False,
        metadata={"help": "Show final steps, the recorded steps that are not transitions."},
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
    """Consecutive rows, or final steps, of a dataset.

    Args:
        id: the full id.
        num_transitions: the number of transitions of the dataset.
        final_steps: the number of its final steps.
        start: the number of the first row, or the place of the first final step.
        trajectories: the number of the trajectory of each row; -1 for a final step without one.
        columns: the columns in the requested order.
        steps: the number of each final step among all recorded steps; None for rows.
    """

    JSON = "id num_transitions final_steps start trajectories steps? columns"

    id: str
    num_transitions: int
    final_steps: int
    start: int
    trajectories: tuple[int, ...]
    columns: tuple[PeekedColumn, ...]
    steps: tuple[int, ...] | None = None


@takes_fields(PeekCall)
def peek(call: PeekCall) -> PeekedRows:
    """Return some rows of an installed dataset as numpy arrays, without importing torch.

    Raises:
        DatasetNotInstalled: the dataset is not installed.
        UnknownDataset: no recipe and no folder has this name.
        UsageError: a row, trajectory, final step or column does not exist, or the rows need too
            much memory.
        DamagedDataset: its files differ from its manifest.
    """
    from datasets_cli.schema.trajectories import numbers_of  # with numpy

    dataset = open_installed(call.id, call.chosen_config())
    known = KnownColumns(dataset.manifest)
    named = texts_of("columns", call.columns)
    keys = [*dict.fromkeys(key for text in named for key in known.of(text, "columns"))]
    keys = keys or known.keys
    rows = _final_places(call, dataset) if call.final else _rows(call, dataset)
    if call.final:
        keys = [key for key in keys if key in dataset.final.keys] or keys  # else an error of it
        numbers, steps = (
            tuple(each[rows.start : rows.stop].tolist())
            for each in (dataset.final.episodes, dataset.final.steps)
        )
    else:
        numbers, steps = tuple(numbers_of(dataset.starts, rows.start, rows.stop).tolist()), None
    return PeekedRows(
        id=dataset.id,
        num_transitions=len(dataset),
        final_steps=len(dataset.final),
        start=rows.start,
        trajectories=numbers,
        columns=_columns(dataset, keys, rows, final=call.final),
        steps=steps,
    )


def _rows(call: PeekCall, dataset: DatasetArrays) -> range:
    rows, of = range(len(dataset)), dataset.id
    if (number := call.trajectory) is not None:
        rows, of = trajectory_rows(dataset, number), f"trajectory {number} of {of}"
    check_below("start", call.start, len(rows), "transition", of)
    return rows[call.start : call.start + call.n]


def _final_places(call: PeekCall, dataset: DatasetArrays) -> range:
    """Return the places of final steps, once there are any."""
    places, of = range(len(dataset.final)), dataset.id
    if (number := call.trajectory) is not None:
        check_below("trajectory", number, dataset.num_trajectories, "trajectory", of)
        (found,) = (dataset.final.episodes == number).nonzero()
        places = range(found[0], found[0] + 1) if len(found) else range(0)
        of = f"trajectory {number} of {of}"
    if not places:
        raise Unsupported(
            f"{of} has no final steps: each of its recorded steps is a transition.",
            argument="final",
            id=dataset.id,
            advice=f"Leave out {argument('final')} to see its rows.",
        )
    check_below("start", call.start, len(places), "final step", of)
    return places[call.start : call.start + call.n]


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
    dataset: DatasetArrays, keys: Sequence[Key], rows: range, *, final: bool
) -> tuple[PeekedColumn, ...]:
    """Return some columns of rows, or of final steps."""
    from datasets_cli.store.arrays import plain_numbers

    manifest = dataset.manifest
    numbers = final_columns(manifest.columns) if final else manifest.columns
    columns: tuple[AnyColumn, ...] = (*numbers, *manifest.texts)
    about = {column.key: column for column in columns}
    row_bytes = sum(each.row_bytes for each in numbers if each.key in keys)
    check_memory(len(rows) * row_bytes, dataset.id)
    if final:
        values_of = {key: dataset.final[key][rows.start : rows.stop] for key in keys}
    else:
        values_of = dataset.arrays_of(frozenset(keys)).run(rows.start, rows.stop)

    def column(key: Key) -> PeekedColumn:
        dtype, shape = about[key].dtype, about[key].shape
        values = values_of[key]
        if dtype == TEXT:
            return PeekedColumn(key, dtype, shape, values.tolist())
        plain = plain_numbers(values)
        # None stands for pairs of numbers packed in one byte.
        return PeekedColumn(key, dtype, shape, values.view("u1") if plain is None else plain)

    return tuple(map(column, keys))
