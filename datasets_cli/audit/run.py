"""Running rules over rows, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from datasets_cli.audit.rules.facts import facts_of
from datasets_cli.audit.rules.finding import SEVERITIES, Finding
from datasets_cli.audit.rules.registry import RULES
from datasets_cli.audit.rules.rows import AuditedRows, audited_rows
from datasets_cli.audit.rules.rule import About, Rule
from datasets_cli.audit.rules.time import UNFINISHED
from datasets_cli.core.progress import Progress, Rows
from datasets_cli.schema.columns import Key
from datasets_cli.schema.transitions import SHIFTED
from datasets_cli.store.arrays import DatasetArrays

RowsOf = Callable[[frozenset[Key]], Iterable[AuditedRows]]
"""Gives all rows, in order, of some columns."""


def audit(dataset: DatasetArrays, progress: Progress) -> list[Finding]:
    """Return the findings of all rules in a dataset, the most severe first."""
    manifest = dataset.manifest
    is_shifted = manifest.successors.get("rule") == SHIFTED
    has_empty = dataset.texts is not None and dataset.texts.has_empty
    texts = tuple(each.key for each in manifest.texts)
    metadata = dict(manifest.metadata)
    if manifest.parent is not None:  # the recipe's statement about its rows
        metadata.pop(UNFINISHED, None)
    about = About(manifest.columns, metadata, facts_of(manifest.id), is_shifted, texts, has_empty)

    def rows_of(keys: frozenset[Key]) -> Iterator[AuditedRows]:
        for rows in audited_rows(dataset, keys):
            yield rows
            progress(Rows(dataset.id, rows.first + len(rows), len(dataset)))

    return findings_of(about, RULES, rows_of)


def findings_of(about: About, rules: Iterable[Rule], rows_of: RowsOf) -> list[Finding]:
    """Return the findings of rules in rows, the most severe first."""
    started: list[tuple[Rule, Any]] = [
        (rule, state) for rule in rules if (state := rule.begin(about)) is not None
    ]
    keys = frozenset[Key]().union(*(state.keys for _, state in started))
    observed = {id(state): state for _, state in started}  # rules may share one
    for rows in rows_of(keys) if keys else ():
        for state in observed.values():
            state.observe(rows)
    found = (
        rule.conclude(state, rule) if rule.conclude else state.conclude(rule)
        for rule, state in started
    )
    findings = [finding for finding in found if finding is not None]
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))
