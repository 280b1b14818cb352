"""Auditing installed datasets: what rules find wrong in their rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import partial

from datasets_cli.audit.report import AuditReport, audited
from datasets_cli.audit.rules.finding import SEVERITIES, Finding
from datasets_cli.catalogue.selection import InstalledIds, as_list, select_each, select_installed
from datasets_cli.config import Config
from datasets_cli.errors import PartialFailure, RldsError
from datasets_cli.install.installed import open_installed
from datasets_cli.json_form import JsonForm
from datasets_cli.options import check_choice, takes_fields
from datasets_cli.progress import ProgressOptions, expect_rows, of_dataset
from datasets_cli.progress_bars import shown
from datasets_cli.store.cache_root import CacheRoot


@dataclass(frozen=True)
class AuditedDataset(JsonForm):
    """What an audit says of a dataset.

    Args:
        id: the full id.
        findings: what rules found, the gravest first.
        rules: the version of each rule that was asked, by its name.
        error: why it was not audited; None where it was.
    """

    JSON = "id findings rules error?"

    id: str
    findings: tuple[Finding, ...] = ()
    rules: Mapping[str, int] = field(default_factory=dict)
    error: RldsError | None = None


@dataclass(frozen=True)
class AuditCall(ProgressOptions, InstalledIds):
    """What ``audit_datasets`` takes.

    Args:
        rule: only these rules, by name.
        severity: only findings of this severity and graver ones: ``"wrong"``, ``"suspicious"`` or
            ``"note"``.
    """

    _: KW_ONLY
    rule: str | Iterable[str] = field(
        default=(), metadata={"metavar": "NAME", "help": "Only this rule; may be repeated."}
    )
    severity: str = "note"


@takes_fields(AuditCall)
def audit_datasets(call: AuditCall) -> list[AuditedDataset]:
    """Return what rules find wrong in the rows of installed datasets; the reports are kept.

    Raises:
        UsageError: there is no such rule or severity.
        UnknownDataset, DatasetNotInstalled: some are not here; none is audited.
        PartialFailure: some of several were not audited; ``results`` has all of them.
        DamagedDataset: a single one is damaged.
    """
    check_choice("severity", call.severity, SEVERITIES)
    config = call.chosen_config()
    ids = select_each(as_list(call.ids), partial(select_installed, config=config))
    names = as_list(call.rule)
    if names:
        from datasets_cli.audit.rules.registry import RULES  # with numpy

        for name in names:
            check_choice("rule", name, [rule.name for rule in RULES])
    results = []
    for id in ids:
        try:
            results.append(_audited(id, config, call, names))
        except RldsError as error:
            if not ids[1:]:
                raise
            results.append(AuditedDataset(id, error=error))
    if failed := [each.id for each in results if each.error]:
        words = {"one": "was not audited", "several": "were not audited"}
        raise PartialFailure.of(failed, len(ids), results, **words)
    return results


def _audited(id: str, config: Config, call: AuditCall, names: list[str]) -> AuditedDataset:
    dataset = open_installed(id, config)
    with shown(call.progress, "rows read") as screen, of_dataset(screen, dataset.id) as told:
        expect_rows(told, dataset.id, 0, len(dataset))
        report: AuditReport = audited(dataset, CacheRoot(config.root), told)
    rules = {name: n for name, n in report.rules.items() if not names or name in names}
    findings = tuple(each for each in report.at_least(call.severity) if each.rule in rules)
    return AuditedDataset(dataset.id, findings, rules)
