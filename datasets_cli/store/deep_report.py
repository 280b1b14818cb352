"""The report of a deep check that found no fault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from datasets_cli.core.checked_json import JsonForm, WrongValue, decode
from datasets_cli.schema.columns import Key, show_key

TABLE = "deep_check"
"""The name of the cached table of a report; see ``store.tables``."""


@dataclass(frozen=True)
class ColumnReport(JsonForm):
    """The range and the special values of one column."""

    JSON = "key nan=num_nan infinite=num_infinite min=smallest max=largest constant=is_constant"

    key: Key
    num_nan: int
    num_infinite: int
    smallest: float | None
    largest: float | None
    is_constant: bool


@dataclass(frozen=True)
class DeepReport(JsonForm):
    """The report of a dataset whose rows all follow the rules of the format.

    Args:
        num_transitions: number of transitions.
        num_trajectories: number of trajectories.
        num_frames: number of decoded frames; 0 without compressed frames.
        columns: the report of each column.
    """

    num_transitions: int
    num_trajectories: int
    num_frames: int
    columns: tuple[ColumnReport, ...]

    @property
    def remarks(self) -> list[str]:
        """Remarks for the user: NaN, infinity and constant columns."""
        lines = []
        for column in self.columns:
            counts = {"NaN": column.num_nan, "infinite numbers": column.num_infinite}
            parts = [f"{count:,} {word}" for word, count in counts.items() if count]
            if parts:
                lines.append(f"{show_key(column.key)} has {' and '.join(parts)}")
        constant = [show_key(column.key) for column in self.columns if column.is_constant]
        if constant:
            lines.append(f"the same in every row: {', '.join(constant)}")
        return lines


def report_from_json(table: Mapping[str, Any]) -> DeepReport | None:
    """Return the report of a cached table, or None if the table is not a report."""
    try:
        return decode(DeepReport, table)
    except WrongValue:
        return None
