"""A rule: its input, its state, its meaning and its findings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import numpy as np

from datasets_cli.audit.rules.facts import Facts
from datasets_cli.audit.rules.finding import SEVERITIES, Finding, Severity
from datasets_cli.audit.rules.rows import AuditedRows
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.recipe import read_tsv
from datasets_cli.schema.columns import Column, Key

State = TypeVar("State")
NONE = np.zeros(0, np.int64)
MOST_ROWS = 500_000
"""Maximum rows that a finding stores; further rows are only counted."""


@dataclass(frozen=True)
class About:
    """The description of a dataset that a rule gets before its rows.

    Args:
        columns: the numeric columns, each with ``key``, ``dtype`` and ``shape`` of a row.
        metadata: the publisher's metadata, from the manifest.
        facts: facts about the environment, such as ``facts.terminates``.
        is_shifted: whether the last step of a truncated trajectory has no row.
        texts: the keys of text columns.
        has_empty_text: whether some text is empty.
    """

    columns: tuple[Column, ...]
    metadata: Mapping[str, Any]
    facts: Facts
    is_shifted: bool
    texts: tuple[Key, ...] = ()
    has_empty_text: bool = False
    _shared: dict[Callable[[About], Any], Any] = field(default_factory=dict)

    @cached_property
    def keys(self) -> frozenset[Key]:
        """The keys of all columns."""
        return frozenset(column.key for column in self.columns)

    def has_number(self, key: Key) -> bool:
        """Return whether a row has one int64 of this key."""
        columns = [each for each in self.columns if each.key == key and each.dtype == "int64"]
        return bool(columns) and math.prod(columns[0].shape) == 1

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
    """The state of a rule after the rows of one dataset so far, at most 8 MB."""

    @property
    def keys(self) -> frozenset[Key]:
        """The columns that it looks at."""

    def observe(self, rows: AuditedRows) -> None:
        """Process the next rows, in order; a trajectory may continue in the following call."""


@dataclass(frozen=True)
class Rule(JsonForm):
    """A rule, which a paper can cite by its name and version.

    Args:
        name: words with hyphens.
        version: increased whenever the findings in the same rows may change.
        severity: the most severe of its findings: ``"wrong"``, ``"suspicious"`` or ``"note"``.
        repair: ``"A"``: exact, from the file; ``"B"``: by a view; ``"C"``: report only, as for all
            rules of users.
        errata: the numbers of the errata that it detects.
        source: the first report of the defect.
        meaning: a sentence that is true of the reported rows.
        limit: a sentence on defects that it cannot detect, and why.
        begin: returns a new state, or None if the rule does not apply to the dataset.
        unit: the counted unit: ``"row"``, or ``"trajectory"``, by its first row.
        conclude: returns the finding for the state after the last rows: ``rule.found(...)`` or
            None. The default is the method ``conclude(rule)`` of the state.
    """

    JSON = "name version severity repair errata source meaning unit limit|null"

    name: str
    version: int
    severity: Severity
    repair: Literal["A", "B", "C"]
    errata: tuple[int, ...]
    source: str
    meaning: str
    begin: Callable[[About], RuleState | None]
    unit: str = "row"
    conclude: Callable[[Any, Rule], Finding | None] | None = None
    limit: str = ""

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES or self.unit not in ("row", "trajectory"):
            given = f"severity={self.severity!r} and unit={self.unit!r}"
            raise ValueError(f"{given}; expected {SEVERITIES} and ('row', 'trajectory')")

    def found(
        self,
        rows: RowNumbers,
        measure: str = "",
        severity: Severity | None = None,
        text: str | None = None,
    ) -> Finding | None:
        """Return a finding about rows, or None without rows.

        Args:
            rows: the rows, or the first row of each trajectory.
            measure: the measured numbers, as text.
            severity: the severity of this finding, if it differs from the rule's.
            text: a sentence that replaces the meaning of the rule.
        """
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
    conclude: Callable[[Any, Rule], Finding | None] | None = None,
) -> Rule:
    """Return the rule of this name, described in ``rules.tsv``."""
    entry: dict[str, Any] = {**_table()[name], "begin": begin, "conclude": conclude}
    errata = tuple(map(int, filter(None, entry["errata"].split(","))))
    return Rule(**{**entry, "version": int(entry["version"]), "errata": errata})


@cache
def _table() -> dict[str, dict[str, str]]:
    return {row["name"]: row for row in read_tsv(Path(__file__).with_name("rules.tsv"))}


class RowNumbers:
    """Numbers of rows, of which the first ones are kept and all are counted."""

    def __init__(self) -> None:
        self.count = 0
        self._kept: list[np.ndarray] = []

    def add(self, rows: np.ndarray) -> None:
        """Add numbers of rows, int64 ``[n]``, such as ``rows.numbers[mask]``."""
        if rows.dtype.kind != "i":
            raise TypeError(f"Numbers of rows are int64, such as rows.numbers[mask]: {rows.dtype}")
        room = max(0, MOST_ROWS - self.count)
        self.count += len(rows)
        if room and len(rows):
            self._kept.append(rows[:room].copy())

    @property
    def rows(self) -> np.ndarray:
        """Those that are kept, int64 ``[n]``."""
        return np.concatenate([np.zeros(0, np.int64), *self._kept])
