"""What is told of how two datasets differ: their columns, trajectories and values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.quantities import counted
from datasets_cli.schema.columns import show_key
from datasets_cli.schema.texts import AnyColumn

if TYPE_CHECKING:
    from datasets_cli.schema.shapes import Runs  # with numpy


@dataclass(frozen=True)
class ColumnDifference(JsonForm):
    """A column that two datasets have, and how its values differ in rows of the same number.

    Args:
        column: key, type and shape, the same in both.
        num_different: rows that differ in a bit, or in a text.
        row: the first of them; None where none differs.
        trajectory: the number of its trajectory in the first dataset.
        index: which value of that row is the first that differs.
        values: that value in both, as text; with its bits where that is the same.
        largest_difference: of two finite numbers; None of text, and of numbers that are packed.
        rows: all, as runs ``(first, number)``, where one dataset is the other one repaired.
    """

    JSON = (
        "key=column.key dtype=column.dtype shape=column.shape num_different row trajectory index "
        "values largest_difference rows?"
    )

    column: AnyColumn
    num_different: int = 0
    row: int | None = None
    trajectory: int | None = None
    index: tuple[int, ...] = ()
    values: tuple[str, ...] = ()
    largest_difference: float | None = None
    rows: Runs | None = None


@dataclass(frozen=True)
class DatasetDifference(JsonForm):
    """How two datasets differ; each pair has the first dataset's before the second one's.

    Args:
        ids: a pair, as all up to ``num_shared``.
        contents: their identities.
        layouts: ``"ted"`` or ``"compact"``.
        num_transitions: their rows.
        num_trajectories: their trajectories.
        only: the columns that the other one does not have with this type and shape.
        num_shared: how many trajectories of each the other one has too, anywhere: observation and
            action are the same bit for bit. None where these are not the same columns in both.
        columns: those that both have with the same type and shape, and how their values differ.
        num_compared: how many rows are compared, the first ones of both. None where no row is read,
            as both have one content, which says that their values are the same.
        trajectory: the first one that has not the same rows in both; None where there is none.
        only_rows: the rows that the other one does not have, as runs, where one dataset is the
            other one repaired: then rows of one step are compared, without ``episode``. Else None.
    """

    JSON = (
        "equal ids contents layouts num_transitions num_trajectories only num_shared num_compared "
        "trajectory only_rows? columns"
    )

    ids: tuple[str, str]
    contents: tuple[str, str]
    layouts: tuple[str, str]
    num_transitions: tuple[int, int]
    num_trajectories: tuple[int, int]
    only: tuple[tuple[AnyColumn, ...], tuple[AnyColumn, ...]]
    num_shared: tuple[int, int] | None
    columns: tuple[ColumnDifference, ...]
    num_compared: int | None = None
    trajectory: int | None = None
    only_rows: tuple[Runs, Runs] | None = None

    @property
    def changed_rows(self) -> list[str]:
        """Sentences on which rows a repair changed; none where neither is the other repaired."""
        if self.only_rows is None:
            return []
        steps = counted(self.num_compared or 0, "step")
        lines = [f"Compared by step of the publisher's file: {steps} of both, all but episode."]
        alone = zip((f"rows of {id} alone" for id in self.ids), self.only_rows, strict=True)
        keys = ((f"rows that differ in {show_key(x.column.key)}", x.rows) for x in self.columns)
        for place, runs in (*alone, *keys):
            rows = (f"{row:,}{f' to {row + n - 1:,}' * (n > 1)}" for row, n in runs or ())
            lines += [f"{place}: {', '.join(rows)}"] if runs else []
        return lines

    @property
    def equal(self) -> bool:
        """Whether columns, trajectories and every bit are the same; ids and layouts may differ."""
        is_one_schema = not any(self.only) and len({*self.num_transitions}) == 1
        is_one_value = not any(each.num_different for each in self.columns)
        return is_one_schema and is_one_value and self.trajectory is None
