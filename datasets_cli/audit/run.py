"""Running rules over rows, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from datasets_cli.audit.rules.facts import facts_of
from datasets_cli.audit.rules.finding import SEVERITIES, Finding
from datasets_cli.audit.rules.lengths import LENGTHS, UNFINISHED
from datasets_cli.audit.rules.rows import AuditedRows, audited_rows
from datasets_cli.audit.rules.rule import About, Rule, RuleState
from datasets_cli.audit.rules.statistics import STATISTICS
from datasets_cli.core.progress import Progress, Rows
from datasets_cli.errors import RldsError
from datasets_cli.parallel.user_code import call_user_code
from datasets_cli.schema.columns import Key, show_key
from datasets_cli.schema.transitions import SHIFTED
from datasets_cli.store.arrays import DatasetArrays

RowsOf = Callable[[frozenset[Key]], Iterable[AuditedRows]]
"""Gives all rows, in order, of some columns."""


def audit(dataset: DatasetArrays, rules: Iterable[Rule], progress: Progress) -> list[Finding]:
    """Return what rules find in the rows of a dataset, the gravest first."""
    manifest = dataset.manifest
    is_shifted = manifest.successors.get("rule") == SHIFTED
    has_empty = dataset.texts is not None and dataset.texts.has_empty
    texts = tuple(each.key for each in manifest.texts)
    # The publisher's statements about a parent do not apply to derived rows.
    untrue = () if manifest.parent is None else (LENGTHS, UNFINISHED, STATISTICS)
    metadata = {name: each for name, each in manifest.metadata.items() if name not in untrue}
    about = About(manifest.columns, metadata, facts_of(manifest.id), is_shifted, texts, has_empty)

    def rows_of(keys: frozenset[Key]) -> Iterator[AuditedRows]:
        for rows in audited_rows(dataset, keys):
            yield rows
            progress(Rows(dataset.id, rows.first + len(rows), len(dataset)))

    return findings_of(about, rules, rows_of, len(dataset))


def findings_of(
    about: About, rules: Iterable[Rule], rows_of: RowsOf, num_rows: int = 0
) -> list[Finding]:
    """Return the findings of rules in rows, the most severe first."""
    started: list[tuple[Rule, Any, Any]] = []
    keys = frozenset[Key]()
    for rule in rules:
        call = partial(call_user_code, f"rule {rule.name}")  # which may be a user's
        if (state := call("begin", partial(rule.begin, about))) is not None:
            started.append((rule, state, call))
            read = call("keys", partial(_keys_of, state))
            keys |= read
            if unknown := sorted(read - about.keys - {*about.texts}):
                names = ", ".join(map(show_key, unknown))
                raise RldsError(
                    f"The rule {rule.name} reads {names}, which are not columns of the dataset.",
                    key=unknown[0],
                )
    observed = {id(state): (state, call) for _, state, call in started}  # rules may share one
    for rows in rows_of(keys) if keys else ():
        num_rows = rows.first + len(rows)
        for state, call in observed.values():
            call("observe", partial(state.observe, rows))
    findings = []
    for rule, state, call in started:
        if (finding := call("conclude", partial(_concluded, rule, state))) is not None:
            findings.append(_checked(rule, finding, num_rows))
    return gravest_first(findings)


def _keys_of(state: RuleState) -> frozenset[Key]:
    return frozenset(state.keys)


def _concluded(rule: Rule, state: Any) -> Finding | None:
    conclude = partial(rule.conclude, state) if rule.conclude else state.conclude
    return conclude(rule)


def _checked(rule: Rule, finding: Finding, num_rows: int) -> Finding:
    if not isinstance(finding, Finding) or finding.severity not in SEVERITIES:
        raise RldsError(
            f"The rule {rule.name} returns {finding!r:.100}; expected rule.found(...) or None.",
            expected="rule.found(...) or None",
            found=finding,
        )
    rows = np.asarray(finding.rows)
    if rows.dtype.kind not in "iu" or not rows.size or rows.min() < 0 or rows.max() >= num_rows:
        found = f"rows {min(finding.rows)} to {max(finding.rows)}" if rows.size else "no row"
        raise RldsError(
            f"The rule {rule.name} reports {found}; expected rows 0 to {num_rows - 1}, or None for "
            "no finding.",
            expected=range(num_rows),
            found=found,
        )
    return finding


def gravest_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings in the order of their severities."""
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))
