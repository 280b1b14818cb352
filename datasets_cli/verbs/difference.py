"""The difference of two datasets: their columns, trajectories and values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.quantities import counted
from datasets_cli.schema.columns import Key, show_key
from datasets_cli.schema.texts import AnyColumn

if TYPE_CHECKING:
    from datasets_cli.schema.shapes import Runs  # with numpy


@dataclass(frozen=True)
class ColumnDifference(JsonForm):
    """The difference of one column of two datasets, row by row.

    Args:
        column: key, dtype and shape, equal in both.
        num_different: the number of transitions that differ.
        row: the first row that differs, or None.
        trajectory: the number of its trajectory in the first dataset.
        index: the index of the first different value of that row.
        values: that value in both datasets as text; with its bits if the texts are equal.
        largest_difference: of two finite numbers; None for text and packed numbers.
        rows: all different rows as runs ``(first, number)``, if one dataset repairs the other.
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
    """The difference of two datasets. Each pair has the value of the first dataset first.

    Args:
        ids: a pair, like every field up to ``num_shared``.
        contents: the digests of their contents.
        layouts: ``"ted"`` or ``"compact"``.
        num_transitions: their numbers of transitions.
        num_trajectories: their numbers of trajectories.
        only: the columns that the other dataset lacks, or has with another dtype or shape.
        num_shared: the number of trajectories in each dataset whose observations and actions also
            occur in the other dataset, bit for bit. None if these columns differ.
        columns: the difference of each column with the same dtype and shape in both.
        num_compared: the number of compared rows, counted from the first. None if no row was read,
            because equal content digests prove that all values are equal.
        trajectory: the first trajectory whose rows differ, or None.
        only_rows: the rows that the other dataset lacks, as runs, if one dataset repairs the other;
            then rows of the same step are compared, without ``episode``. Otherwise None.
        final_steps: their numbers of final steps.
        final_difference: the place of the first final step that differs, in the first dataset, and
            the key of its first column that does; or None.
    """

    JSON = (
        "equal ids contents layouts num_transitions num_trajectories only num_shared num_compared "
        "trajectory only_rows? final_steps final_difference columns"
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
    final_steps: tuple[int, int] = (0, 0)
    final_difference: tuple[int, Key] | None = None

    @property
    def changed_rows(self) -> list[str]:
        """Sentences about the rows that a repair changed; empty without a repair."""
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
        """Whether columns, trajectories and all bits are equal; ids and layouts may differ."""
        is_one_schema = not any(self.only) and len({*self.num_transitions}) == 1
        is_one_schema &= len({*self.final_steps}) == 1
        is_one_value = not any(each.num_different for each in self.columns)
        is_one_value &= self.final_difference is None
        return is_one_schema and is_one_value and self.trajectory is None
