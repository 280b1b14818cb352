"""A rule: what it looks at, what it means, and what it finds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import numpy as np

from datasets_cli.audit.rules.facts import Facts
from datasets_cli.audit.rules.finding import Finding, Severity
from datasets_cli.audit.rules.rows import AuditedRows
from datasets_cli.json_form import JsonForm
from datasets_cli.recipe import read_tsv
from datasets_cli.schema.columns import Column, Key

State = TypeVar("State")
NONE = np.zeros(0, np.int64)
MOST_ROWS = 500_000
"""Of one finding that are kept; how many there are is counted on."""


@dataclass(frozen=True)
class About:
    """What rules know of a dataset before they see a row."""

    columns: tuple[Column, ...]
    metadata: Mapping[str, Any]
    facts: Facts
    is_shifted: bool  # the last step of a trajectory that was cut off is no row
    texts: tuple[Key, ...] = ()
    _shared: dict[Callable[[About], Any], Any] = field(default_factory=dict)

    @property
    def keys(self) -> frozenset[Key]:
        """The keys of all columns."""
        return frozenset(column.key for column in self.columns)

    def has_number(self, key: Key) -> bool:
        """Return whether a row has one int64 of this key."""
        columns = (each for each in self.columns if each.key == key and each.dtype == "int64")
        return any(math.prod(each.shape) == 1 for each in columns)

    def stated(self, *names: str) -> np.ndarray:
        """Return the numbers below some names of the metadata ``[n]``; none where others are."""
        value: Any = self.metadata
        for name in names:
            value = value.get(name) if isinstance(value, Mapping) else None
        with suppress(ValueError):  # lists of several lengths
            numbers = np.array(value).ravel()
            return numbers if numbers.dtype.kind in "iuf" else NONE
        return NONE

    def shared(self, make: Callable[[About], State]) -> State:
        """Return the state that several rules share, which is made once."""
        if make not in self._shared:
            self._shared[make] = make(self)
        state: State = self._shared[make]
        return state


class RuleState(Protocol):
    """What a rule keeps of the rows of one dataset so far, at most 8 MB."""

    @property
    def keys(self) -> frozenset[Key]:
        """The columns that it looks at."""

    def observe(self, rows: AuditedRows) -> None:
        """Look at the next rows; they come in order."""


@dataclass(frozen=True)
class Rule(JsonForm):
    """A rule, which a paper can cite by its name and version."""

    JSON = "name version severity repair errata source meaning unit"

    name: str
    version: int
    """Raised whenever it may find something else in the same rows."""
    severity: Severity
    """The gravest that its findings have."""
    repair: Literal["A", "B", "C"]
    """A: exact from the file; B: a view is offered; C: told only."""
    errata: tuple[int, ...]
    """The numbers of the errata that it finds."""
    source: str
    """Where the defect was told first."""
    meaning: str
    begin: Callable[[About], RuleState | None]
    """Returns a state, or None where a dataset has nothing that it looks at."""
    unit: str = "row"
    """What it counts: ``"row"``, or ``"trajectory"``, by its first row."""
    conclude: Callable[[Any, Rule], Finding | None] = lambda state, rule: state.conclude(rule)
    """Returns what was found, of the state after the last rows."""

    def found(
        self,
        rows: RowNumbers,
        measure: str = "",
        severity: Severity | None = None,
        text: str | None = None,
    ) -> Finding | None:
        """Return a finding about some rows; None where there are none."""
        if not rows.count:
            return None
        return Finding(
            rule=self.name,
            version=self.version,
            severity=severity or self.severity,
            unit=self.unit,
            count=rows.count,
            rows=tuple(rows.rows.tolist()),
            measure=measure,
            text=text or self.meaning,
        )


def rule(
    name: str,
    begin: Callable[[About], RuleState | None],
    conclude: Callable[[Any, Rule], Finding | None] = Rule.conclude,
) -> Rule:
    """Return the rule of this name; what is told of it stands in ``rules.tsv``."""
    told: dict[str, Any] = {**_table()[name], "begin": begin, "conclude": conclude}
    errata = tuple(int(number) for number in told["errata"].split(",") if number)
    return Rule(**{**told, "version": int(told["version"]), "errata": errata})


@cache
def _table() -> dict[str, dict[str, str]]:
    return {row["name"]: row for row in read_tsv(Path(__file__).with_name("rules.tsv"))}


class RowNumbers:
    """Numbers of rows, of which the first ones are kept and all are counted."""

    def __init__(self) -> None:
        self.count = 0
        self._kept: list[np.ndarray] = []

    def add(self, rows: np.ndarray) -> None:
        """Add numbers of rows."""
        room = max(0, MOST_ROWS - self.count)
        self.count += len(rows)
        if room and len(rows):
            self._kept.append(rows[:room].copy())

    @property
    def rows(self) -> np.ndarray:
        """Those that are kept, int64 ``[n]``."""
        return np.concatenate([np.zeros(0, np.int64), *self._kept])
