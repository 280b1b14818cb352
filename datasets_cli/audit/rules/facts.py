"""Facts of environments that rules rest on, each with its source: ``facts.tsv``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from datasets_cli.audit.rules.rows import AuditedRows
from datasets_cli.recipe import read_tsv
from datasets_cli.schema.columns import Column, Key


@dataclass(frozen=True)
class Measure:
    """How far the environment moves in a step, or how far it is from where a reset puts it."""

    kind: str  # "step" or "pose"
    key: Key
    # Numbers of a row, where a reset puts them, and the distance that counts as 1.
    parts: tuple[tuple[tuple[int, ...], np.ndarray, float], ...]
    bound: float  # what no step, or no reset, is beyond

    def fits(self, column: Column) -> bool:
        """Return whether a column is the one that has these numbers."""
        width, is_float = math.prod(column.shape), column.dtype.startswith("float")
        numbers = (number for part, _, _ in self.parts for number in part)
        return column.key == self.key and is_float and all(number < width for number in numbers)

    def positions(self, rows: AuditedRows) -> np.ndarray:
        """Return the numbers that a step changes, float64 ``[n, d]``."""
        numbers = tuple(number for part, _, _ in self.parts for number in part)
        return rows.values(self.key, numbers)

    def distances(self, rows: AuditedRows) -> np.ndarray:
        """Return how far each row is from the pose of a reset, float64 ``[n]``."""
        each = [
            np.abs(rows.values(self.key, numbers) - pose).max(1) / unit
            for numbers, pose, unit in self.parts
        ]
        distances: np.ndarray = np.max(each, axis=0)
        return distances

    def is_near(self, rows: AuditedRows) -> np.ndarray:
        """Return whether each row is where a reset puts the environment, bool ``[n]``."""
        return self.distances(rows) <= self.bound


@dataclass(frozen=True)
class Facts:
    """Facts about the environment of a dataset."""

    terminates: bool = True  # whether an episode can terminate, as far as known
    tolerance: float | None = None  # how near a goal counts as reached
    measures: tuple[Measure, ...] = ()  # how ends are distinguished from steps
    sources: tuple[str, ...] = ()


def facts_of(id: str) -> Facts:
    """Return the facts about the environment of a dataset, or of the source of a repaired one."""
    facts = Facts()
    for row in facts_table():
        if re.fullmatch(row["datasets"], id.partition("~")[0]):
            facts = replace(
                facts,
                terminates=facts.terminates and row["ends"] != "never",
                tolerance=float(row["tolerance"]) if row["tolerance"] else facts.tolerance,
                measures=(*facts.measures, *_measures(row)),
                sources=(*facts.sources, row["source"]),
            )
    return facts


@cache
def facts_table() -> list[dict[str, str]]:
    """Return the rows of ``facts.tsv``."""
    return read_tsv(Path(__file__).with_suffix(".tsv"))


def _measures(row: dict[str, str]) -> list[Measure]:
    if not row["measure"]:
        return []
    parts = []
    for text in row["numbers"].split(";"):
        numbers, _, rest = text.partition("|")
        pose, _, unit = rest.partition("|")
        each = tuple(int(number) for number in numbers.split(",") if number)
        parts.append((each, np.array([float(x) for x in pose.split(",") if x]), float(unit or 1)))
    key = tuple(row["column"].split("."))
    return [Measure(row["measure"], key, tuple(parts), float(row["bound"]))]
