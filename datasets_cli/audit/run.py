"""Running rules over rows, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from datasets_cli.audit.rules.facts import facts_of
from datasets_cli.audit.rules.finding import SEVERITIES, Finding
from datasets_cli.audit.rules.rows import AuditedRows, audited_rows
from datasets_cli.audit.rules.rule import About, Rule
from datasets_cli.progress import Progress
from datasets_cli.schema.columns import Key
from datasets_cli.schema.transitions import SHIFTED
from datasets_cli.store.arrays import DatasetArrays

RowsOf = Callable[[frozenset[Key]], Iterable[AuditedRows]]
"""Gives all rows, in order, of some columns."""


def audit(dataset: DatasetArrays, rules: Iterable[Rule], progress: Progress) -> list[Finding]:
    """Return what rules find in the rows of a dataset, the gravest first."""
    manifest = dataset.manifest
    is_shifted = manifest.successors.get("rule") == SHIFTED
    has_empty = dataset.texts is not None and dataset.texts.has_empty  # else no text is read
    texts = tuple(each.key for each in manifest.texts if has_empty)
    about = About(manifest.columns, manifest.metadata, facts_of(manifest.id), is_shifted, texts)

    def told(keys: frozenset[Key]) -> Iterator[AuditedRows]:
        for rows in audited_rows(dataset, keys):
            yield rows
            progress.writing(rows.first + len(rows))

    return findings_of(about, rules, told)


def findings_of(about: About, rules: Iterable[Rule], rows_of: RowsOf) -> list[Finding]:
    """Return what rules find in rows, the gravest first."""
    begun = [(rule, state) for rule in rules if (state := rule.begin(about)) is not None]
    keys = frozenset(key for _, state in begun for key in state.keys)
    states = {id(state): state for _, state in begun}.values()  # rules may share one
    for rows in rows_of(keys) if begun else ():
        for state in states:
            state.observe(rows)
    concluded = (rule.conclude(state, rule) for rule, state in begun)
    findings = [finding for finding in concluded if finding is not None]
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))
