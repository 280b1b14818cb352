"""Audits of installed datasets: defects that rules find in their rows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from datasets_cli.audit.report import AuditReport, audited
from datasets_cli.audit.rules.finding import SEVERITIES, Finding
from datasets_cli.catalogue.names import (
    InstalledIds,
    as_list,
    named_ids,
    select_each,
    select_installed,
)
from datasets_cli.config import Config
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.options import check_choice, takes_fields
from datasets_cli.core.progress import ProgressOptions, Rows
from datasets_cli.core.progress_display import displayed
from datasets_cli.errors import PartialFailure, RldsError
from datasets_cli.install.find import open_installed
from datasets_cli.store.cache_root import CacheRoot

if TYPE_CHECKING:
    from datasets_cli.audit.rules.rule import Rule


@dataclass(frozen=True)
class AuditedDataset(JsonForm):
    """The result of an audit of one dataset.

    Args:
        id: the full id.
        findings: the findings, the most severe first.
        rules: the version of each rule that ran, by its name.
        limits: the defects that rules without findings cannot detect, by the names of the rules.
        error: the reason why the audit failed, or None.
    """

    JSON = "id findings rules limits error?"

    id: str
    findings: tuple[Finding, ...] = ()
    rules: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)
    error: RldsError | None = None


@dataclass(frozen=True)
class AuditCall(ProgressOptions, InstalledIds):
    """The arguments of ``audit_datasets``.

    Args:
        rule: names of the rules to run; all by default.
        severity: return findings of at least this severity: ``"wrong"``, ``"suspicious"`` or
            ``"note"``.
        rules: more rules: Python files that define ``RULES``, which are imported, or ``Rule``
            objects. Their findings are not cached.
    """

    _: KW_ONLY
    rule: str | Iterable[str] = field(
        default=(), metadata={"metavar": "NAME", "help": "Run only this rule; may be repeated."}
    )
    severity: str = field(
        default="note",
        metadata={"help": "Show findings of at least this severity: wrong, suspicious or note."},
    )
    rules: str | os.PathLike[str] | Rule | Iterable[str | os.PathLike[str] | Rule] = field(
        default=(),
        metadata={
            "typed": list[str],
            "metavar": "FILE",
            "help": "Also run the rules in this Python file; may be repeated.",
        },
    )


@takes_fields(AuditCall)
def audit_datasets(call: AuditCall) -> list[AuditedDataset]:
    """Audit the rows of installed datasets with rules, and cache the reports.

    Raises:
        UsageError: a rule, a severity or a file of rules does not exist.
        RldsError: a user's rule raises an error or returns an invalid finding.
        UnknownDataset, DatasetNotInstalled: a dataset is not installed; none is audited.
        PartialFailure: the audit of some datasets failed; ``results`` has all results.
        DamagedDataset: the only dataset is damaged.
    """
    from datasets_cli.audit.own_rules import own_rules  # with numpy
    from datasets_cli.audit.rules.registry import RULES

    check_choice("severity", call.severity, SEVERITIES)
    config = call.chosen_config()
    ids = select_each(named_ids(call.ids), partial(select_installed, config=config))
    names, own = as_list(call.rule), own_rules(call.rules)
    for name in names:
        check_choice("rule", name, [rule.name for rule in (*RULES, *own)])
    own = [rule for rule in own if not names or rule.name in names]
    results = []
    for id in ids:
        try:
            results.append(_audited(id, config, call, own))
        except RldsError as error:
            if not ids[1:]:
                raise
            results.append(AuditedDataset(id, error=error))
    if failed := [each.id for each in results if each.error]:
        words = {"one": "was not audited", "several": "were not audited"}
        raise PartialFailure.of(failed, len(ids), results, **words)
    return results


def _audited(id: str, config: Config, call: AuditCall, own: list[Rule]) -> AuditedDataset:
    from datasets_cli.audit.rules.registry import RULES
    from datasets_cli.audit.run import audit, gravest_first

    dataset = open_installed(id, config)
    with displayed(call.progress, "transitions read") as progress:
        progress(Rows(dataset.id, 0, len(dataset)))
        found = audit(dataset, own, progress)  # first: if a rule fails, nothing is cached
        report = audited(dataset, CacheRoot(config.root), progress)
    versions = {**report.rules, **{rule.name: rule.version for rule in own}}
    report = AuditReport(versions, tuple(gravest_first([*report.findings, *found])))
    names = as_list(call.rule)
    rules = {name: n for name, n in report.rules.items() if not names or name in names}
    findings = tuple(each for each in report.at_least(call.severity) if each.rule in rules)
    limits = {rule.name: rule.limit for rule in RULES if rule.limit and rule.name in rules}
    return AuditedDataset(dataset.id, findings, rules, {} if findings else limits)
