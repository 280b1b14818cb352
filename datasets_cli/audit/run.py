"""Running rules over a dataset, in one pass."""

from __future__ import annotations

from collections.abc import Iterable

from datasets_cli.audit.facts import facts_of
from datasets_cli.audit.finding import SEVERITIES, Finding
from datasets_cli.audit.rows import audited_rows
from datasets_cli.audit.rule import About, Rule
from datasets_cli.progress import Progress
from datasets_cli.store.arrays import ArraySource


def audit(dataset: ArraySource, rules: Iterable[Rule], progress: Progress) -> list[Finding]:
    """Return what rules find in the rows of a dataset, the gravest first."""
    manifest = dataset.manifest
    about = About(manifest, facts_of(manifest.id))
    begun = [(rule, state) for rule in rules if (state := rule.begin(about)) is not None]
    keys = frozenset(key for _, state in begun for key in state.keys)
    for rows in audited_rows(dataset, keys) if begun else ():
        for _, state in begun:
            state.observe(rows)
        progress.writing(rows.first + len(rows))
    concluded = (state.conclude(rule) for rule, state in begun)
    findings = [finding for finding in concluded if finding is not None]
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))
