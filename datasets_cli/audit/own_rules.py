"""Rules of users: loaded where an audit is asked for, and checked in what they return."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from datasets_cli.audit.rules.finding import SEVERITIES, Finding
from datasets_cli.audit.rules.registry import RULES
from datasets_cli.audit.rules.rows import AuditedRows
from datasets_cli.audit.rules.rule import About, Rule, RuleState
from datasets_cli.errors import RldsError, UsageError, argument
from datasets_cli.schema.columns import Key
from datasets_cli.user_code import imported, tried

logger = logging.getLogger(__name__)

Given = str | os.PathLike | Rule
GROUP = "datasets_cli.rules"
"""The entry points of installed packages that have rules."""


def own_rules(given: Given | Iterable[Given]) -> tuple[Rule, ...]:
    """Return the rules of installed packages, and those that are given, or files of them."""
    rules: dict[str, Rule] = {}
    for point in entry_points(group=GROUP):
        where = f"rules of the entry point {point.name}"
        try:
            rules |= _checked(tried(where, "their import", point.load), where, rules)
        except RldsError as error:  # an installed package must not stop what needs others
            logger.warning("%s They are left out.", error)
    for each in [given] if isinstance(given, Given) else given:
        several, where = ([each], "given rules") if isinstance(each, Rule) else _of_file(each)
        rules |= _checked(several, where, rules)
    return tuple(rules.values())


def _of_file(file: str | os.PathLike) -> tuple[Any, str]:
    path = Path(file).expanduser().absolute()
    if not path.is_file() or path.suffix != ".py":
        what = "is no Python file" if path.exists() else "does not exist"
        raise UsageError(f"{argument('rules')}: {path} {what}. Give a file that defines RULES.")
    with imported(f"{GROUP}.{path.stem}", path, where := f"rules of {path}") as module:
        return getattr(module, "RULES", ()), where


def _checked(several: Any, where: str, known: Mapping[str, Rule]) -> dict[str, Rule]:
    """Return rules by name, each of which is checked while it runs."""
    rules: dict[str, Rule] = {}
    is_right = isinstance(several, list | tuple) and all(isinstance(each, Rule) for each in several)
    if not is_right or not several:
        raise UsageError(f"The {where}: expected RULES, a tuple of Rule, found {several!r:.100}.")
    for rule in several:
        if rule.name in {*known, *rules, *(each.name for each in RULES)}:
            raise UsageError(f"The {where}: there is a rule {rule.name} already. Rename yours.")
        if rule.repair != "C":
            raise UsageError(
                f"The {where}: {rule.name} has repair={rule.repair!r}; expected 'C', for only the "
                "rules that come with this program repair."
            )
        rules[rule.name] = replace(rule, begin=partial(_begin, rule, where))
    return rules


def _begin(rule: Rule, where: str, about: About) -> RuleState | None:
    whose = f"rule {rule.name}, of the {where},"
    state = tried(whose, "begin", partial(rule.begin, about))
    return None if state is None else _OwnState(rule, state, whose, about.keys)


@dataclass
class _OwnState:
    """The state of a user's rule: errors name its line, and what it finds is about rows."""

    rule: Rule
    state: RuleState
    whose: str
    known: frozenset[Key]
    num_rows: int = 0

    @property
    def keys(self) -> frozenset[Key]:
        keys = tried(self.whose, "keys", lambda: frozenset(self.state.keys))
        if not keys or keys - self.known:
            raise RldsError(
                f"The {self.whose} looks at {sorted(keys - self.known) or 'no column'}; expected "
                "keys of the dataset's columns of numbers. Where it lacks one, return None in begin."
            )
        return keys

    def observe(self, rows: AuditedRows) -> None:
        self.num_rows = rows.first + len(rows)
        tried(self.whose, "observe", partial(self.state.observe, rows))

    def conclude(self, rule: Rule) -> Finding | None:
        finding = tried(self.whose, "conclude", partial(self.state.conclude, rule))
        if finding is None:
            return None
        if not isinstance(finding, Finding) or finding.rule != rule.name:
            raise RldsError(f"The {self.whose} returns {finding!r:.100}; expected rule.found(...).")
        if SEVERITIES.index(finding.severity) < SEVERITIES.index(rule.severity):
            raise RldsError(f"The {self.whose} finds {finding.severity}, but is {rule.severity}.")
        if not finding.rows or not 0 <= min(finding.rows) <= max(finding.rows) < self.num_rows:
            raise RldsError(
                f"The {self.whose} finds rows {finding.rows[:3]}...; expected numbers of rows from "
                f"0 to {self.num_rows - 1:,}, such as rows.numbers[mask]."
            )
        return finding
