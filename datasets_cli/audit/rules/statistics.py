"""Statistics that a publisher states of columns, against the rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from datasets_cli.audit.rules.finding import Finding
from datasets_cli.audit.rules.rows import AuditedRows
from datasets_cli.audit.rules.rule import About, RowNumbers, Rule, rule
from datasets_cli.schema.columns import Key, show_key

QUANTILES = {f"q{share:02}" for share in range(1, 100)}
NAMES = QUANTILES | {"min", "max"}
STATISTICS = "stats"
"""The metadata entry with ``min``, ``max`` and quantiles ``q01`` to ``q99`` of each column."""
TOLERANCE = 0.05
"""The tolerance of quantiles, as a share of rows: they are often estimates."""


@dataclass
class Statistics:
    """Rows beyond the published minimum and maximum, and wrong shares of quantiles."""

    stated: Mapping[Key, Mapping[str, np.ndarray]]  # float64 [d]
    num_rows: int = 0
    beyond: RowNumbers = field(default_factory=RowNumbers)
    rows: RowNumbers = field(default_factory=RowNumbers)
    # How many rows are less than a quantile, and how many are not more: int64 [2, d].
    counts: dict[tuple[Key, str], np.ndarray] = field(default_factory=dict)

    @property
    def keys(self) -> frozenset[Key]:
        return frozenset(self.stated)

    def observe(self, rows: AuditedRows) -> None:
        is_beyond = np.zeros(len(rows), np.bool_)
        for key, stated in self.stated.items():
            values = rows.values(key)
            is_beyond |= (values < stated.get("min", -np.inf)).any(1)
            is_beyond |= (values > stated.get("max", np.inf)).any(1)
            for name in QUANTILES & stated.keys():
                less, upto = values < stated[name], values <= stated[name]
                counts = np.stack((less.sum(0), upto.sum(0)))
                self.counts[key, name] = self.counts.get((key, name), 0) + counts
        self.beyond.add(rows.numbers[is_beyond])
        self.rows.add(rows.numbers)
        self.num_rows += len(rows)

    def conclude(self, rule: Rule) -> Finding | None:
        if self.beyond.count:
            return rule.found(self.beyond, text="A number is beyond the stated min or max.")
        worst, measure = TOLERANCE, ""
        for (key, name), counts in self.counts.items():
            less, upto = counts / max(1, self.num_rows)
            share = float(f"0.{name[1:]}")
            off = np.maximum(less - share, share - upto)
            if off.max() > worst:
                worst, number = float(off.max()), int(off.argmax())
                measure = (
                    f"{name} of {show_key(key)}, number {number}: {less[number]:.1%} of the rows "
                    f"are less, {1 - upto[number]:.1%} more; off by {TOLERANCE:.0%} or more"
                )
        return rule.found(self.rows, measure, "suspicious") if measure else None


def _begin(about: About) -> Statistics | None:
    published = about.metadata.get(STATISTICS)
    if not isinstance(published, Mapping):
        return None
    stated: dict[Key, dict[str, np.ndarray]] = {}
    for column in (each for each in about.columns if each.dtype in ("float32", "float64")):
        of_column = published.get(show_key(column.key))
        for name in NAMES & of_column.keys() if isinstance(of_column, Mapping) else ():
            numbers = about.stated(STATISTICS, show_key(column.key), name)
            if 0 < numbers.size == math.prod(column.shape):
                exact = numbers.astype(column.dtype).astype(np.float64)  # as exact as the column
                stated.setdefault(column.key, {})[name] = exact
    return Statistics(stated) if stated else None


RULES = (rule("stated-statistics", _begin),)
