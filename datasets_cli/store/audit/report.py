"""What a deep check found out about a dataset without a fault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from datasets_cli.store.schema.columns import Key, show_key

TABLE = "deep_check"
"""Name of the table that keeps a report; see ``store.tables``."""


@dataclass(frozen=True)
class ColumnReport:
    """The numbers of one column."""

    key: Key
    num_nan: int
    num_infinite: int
    smallest: float | None
    largest: float | None
    is_constant: bool

    def to_json(self) -> dict[str, Any]:
        """Return the column as JSON values."""
        return {
            "key": list(self.key),
            "nan": self.num_nan,
            "infinite": self.num_infinite,
            "min": self.smallest,
            "max": self.largest,
            "constant": self.is_constant,
        }


@dataclass(frozen=True)
class DeepReport:
    """A dataset whose every row was read, and keeps the rules of the format.

    Args:
        num_transitions: rows read.
        num_trajectories: trajectories.
        num_frames: frames decoded, where they are compressed.
        columns: every column.
    """

    num_transitions: int
    num_trajectories: int
    num_frames: int
    columns: tuple[ColumnReport, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "num_transitions": self.num_transitions,
            "num_trajectories": self.num_trajectories,
            "num_frames": self.num_frames,
            "columns": [column.to_json() for column in self.columns],
        }

    @property
    def remarks(self) -> list[str]:
        """What people should see: NaN, infinity and columns that never change."""
        lines = []
        for column in self.columns:
            counts = {"NaN": column.num_nan, "infinite numbers": column.num_infinite}
            found = [f"{count:,} {word}" for word, count in counts.items() if count]
            if found:
                lines.append(f"{show_key(column.key)} has {' and '.join(found)}")
        constant = [show_key(column.key) for column in self.columns if column.is_constant]
        if constant:
            lines.append(f"the same in every row: {', '.join(constant)}")
        return lines


def report_from_json(table: Mapping[str, Any]) -> DeepReport | None:
    """Return the report that ``to_json`` described; None where these values are no report."""
    try:
        columns = tuple(_column(entry) for entry in table["columns"])
        return DeepReport(
            int(table["num_transitions"]),
            int(table["num_trajectories"]),
            int(table["num_frames"]),
            columns,
        )
    except (KeyError, TypeError, ValueError):
        return None


def _column(entry: Mapping[str, Any]) -> ColumnReport:
    smallest, largest = (
        number if isinstance(number, int) or number is None else float(number)
        for number in (entry["min"], entry["max"])
    )
    return ColumnReport(
        tuple(str(name) for name in entry["key"]),
        int(entry["nan"]),
        int(entry["infinite"]),
        smallest,
        largest,
        bool(entry["constant"]),
    )
