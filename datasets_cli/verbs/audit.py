"""Audits of installed datasets: defects that rules find in their rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import partial

from datasets_cli.audit.report import audited
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
    """

    _: KW_ONLY
    rule: str | Iterable[str] = field(
        default=(), metadata={"metavar": "NAME", "help": "Run only this rule; may be repeated."}
    )
    severity: str = field(
        default="note",
        metadata={"help": "Show findings of at least this severity: wrong, suspicious or note."},
    )


@takes_fields(AuditCall)
def audit_datasets(call: AuditCall) -> list[AuditedDataset]:
    """Audit the rows of installed datasets with rules, and cache the reports.

    Raises:
        UsageError: a rule or a severity does not exist.
        UnknownDataset, DatasetNotInstalled: a dataset is not installed; none is audited.
        PartialFailure: the audit of some datasets failed; ``results`` has all results.
        DamagedDataset: the only dataset is damaged.
    """
    from datasets_cli.audit.rules.registry import RULES  # with numpy

    check_choice("severity", call.severity, SEVERITIES)
    config = call.chosen_config()
    ids = select_each(named_ids(call.ids), partial(select_installed, config=config))
    for name in as_list(call.rule):
        check_choice("rule", name, [rule.name for rule in RULES])
    results = []
    for id in ids:
        try:
            results.append(_audited(id, config, call))
        except RldsError as error:
            if not ids[1:]:
                raise
            results.append(AuditedDataset(id, error=error))
    if failed := [each.id for each in results if each.error]:
        words = {"one": "was not audited", "several": "were not audited"}
        raise PartialFailure.of(failed, len(ids), results, **words)
    return results


def _audited(id: str, config: Config, call: AuditCall) -> AuditedDataset:
    from datasets_cli.audit.rules.registry import RULES

    dataset = open_installed(id, config)
    with displayed(call.progress, "transitions read") as progress:
        progress(Rows(dataset.id, 0, len(dataset)))
        report = audited(dataset, CacheRoot(config.root), progress)
    names = as_list(call.rule)
    rules = {name: n for name, n in report.rules.items() if not names or name in names}
    findings = tuple(each for each in report.at_least(call.severity) if each.rule in rules)
    limits = {rule.name: rule.limit for rule in RULES if rule.limit and rule.name in rules}
    return AuditedDataset(dataset.id, findings, rules, {} if findings else limits)
