"""The report of an audit of a dataset, cached with its tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from datasets_cli.audit.rules.finding import SEVERITIES, Finding, Severity
from datasets_cli.core.checked_json import JsonForm, WrongValue, decode
from datasets_cli.core.progress import Note, Progress
from datasets_cli.errors import DiskFull
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.check import check_entries
from datasets_cli.store.manifest import Manifest
from datasets_cli.store.tables import load_table, save_table

if TYPE_CHECKING:
    from datasets_cli.store.arrays import DatasetArrays

TABLE = "audit"
STORED_ROWS = 100


@dataclass(frozen=True)
class AuditReport(JsonForm):
    """What rules found in the rows of a dataset, the gravest first."""

    rules: Mapping[str, int]  # the version of each rule that ran, by its name
    findings: tuple[Finding, ...]

    @property
    def gravest(self) -> Severity | None:
        """The severity of the gravest finding; None where there is none."""
        return self.findings[0].severity if self.findings else None

    def at_least(self, severity: str) -> tuple[Finding, ...]:
        """Return the findings of at least this severity."""
        severities = [str(each) for each in SEVERITIES]
        chosen = severities[: severities.index(severity) + 1]
        return tuple(each for each in self.findings if each.severity in chosen)


def load_report(root: CacheRoot, content: str) -> AuditReport | None:
    """Return the report of a dataset's data; None where none is stored."""
    try:
        table = load_table(root, content, TABLE)
        return None if table is None else decode(AuditReport, table)
    except WrongValue:
        return None


def gravest(root: CacheRoot, content: str) -> str | None:
    """Return the severity of the gravest finding, ``"clean"`` where there is none, or None."""
    report = load_report(root, content)
    return None if report is None else report.gravest or "clean"


def report_defects(folder: Path, manifest: Manifest, root: CacheRoot, progress: Progress) -> None:
    """Audit a dataset that has just been committed, and report its defects."""
    from datasets_cli.store.arrays import DatasetArrays  # with numpy

    dataset = DatasetArrays(folder, manifest, check_entries(folder, manifest))
    for finding in audited(dataset, root, progress).at_least("wrong"):
        progress(Note(f"{manifest.id}: {finding.rule}: {finding}"))


def audited(dataset: DatasetArrays, root: CacheRoot, progress: Progress) -> AuditReport:
    """Return the report of a dataset: the stored one, or a new one if the rules have changed."""
    from datasets_cli.audit.rules.registry import RULES  # with numpy
    from datasets_cli.audit.run import audit

    versions = {rule.name: rule.version for rule in RULES}
    content = dataset.manifest.content
    stored = load_report(root, content)
    if stored is not None and stored.rules == versions:
        return stored
    if stored is not None:
        new = [name for name in versions if versions[name] != stored.rules.get(name)]
        progress(Note(f"{dataset.id}: audited again, because rules are new: {', '.join(new)}"))
    findings = (
        replace(each, rows=each.rows[:STORED_ROWS]) for each in audit(dataset, RULES, progress)
    )
    report = AuditReport(versions, tuple(findings))
    try:
        save_table(root, content, TABLE, report.to_json())
    except (OSError, DiskFull) as error:
        progress(Note(f"{dataset.id}: the report of the audit is not stored ({error})"))
    return report
