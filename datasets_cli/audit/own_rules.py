"""Rules of users: of installed packages, and of files that an audit is given."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from datasets_cli.audit.rules.registry import RULES
from datasets_cli.audit.rules.rule import Rule
from datasets_cli.errors import RldsError, UsageError, argument
from datasets_cli.parallel.user_code import call_user_code, module_of

logger = logging.getLogger(__name__)

Given = str | os.PathLike | Rule
GROUP = "datasets_cli.rules"


def own_rules(given: Given | Iterable[Given]) -> list[Rule]:
    """Return the rules of installed packages and the rules in ``given``."""
    rules: list[Rule] = []
    for point in entry_points(group=GROUP):
        where = f"entry point {point.name}"
        try:
            rules += _checked(call_user_code(where, "its import", point.load), where, rules)
        except RldsError as error:  # an installed package must not stop what needs others
            logger.warning("%s Its rules are left out.", error)
    several = [given] if isinstance(given, Given) else given
    if not isinstance(several, Iterable):
        raise _no_rule(given)
    for each in several:
        if not isinstance(each, Given):
            raise _no_rule(each)
        found, where = ([each], "call") if isinstance(each, Rule) else _of_file(Path(each))
        rules += _checked(found, where, rules)
    return rules


def _no_rule(given: Any) -> UsageError:
    return UsageError(
        f"{argument('rules')} must be files that define RULES, or Rule objects, not "
        f"{given!r:.100}.",
        argument="rules",
        expected="files that define RULES, or Rule objects",
        found=given,
        advice="Wrap a function in a rule: Rule(name, ..., begin).",
    )


def _of_file(file: Path) -> tuple[Any, str]:
    path = file.expanduser().absolute()
    if not path.is_file() or path.suffix != ".py":
        what = "is not a Python file" if path.exists() else "does not exist"
        raise UsageError(
            f"{argument('rules')}: {path} {what}.",
            argument="rules",
            path=path,
            advice="Pass a file that defines RULES.",
        )
    with module_of(f"{GROUP}.{path.stem}", path, where := f"file {path}") as module:
        return getattr(module, "RULES", ()), where


def _checked(several: Any, where: str, known: list[Rule]) -> tuple[Rule, ...]:
    is_right = isinstance(several, list | tuple) and all(isinstance(each, Rule) for each in several)
    if not is_right or not several:
        raise UsageError(
            f"The {where} must define RULES, a tuple of Rule; found {several!r:.100}.",
            argument="rules",
            expected="a tuple of Rule",
            found=several,
        )
    for rule in several:
        if [each.name for each in (*RULES, *known, *several)].count(rule.name) > 1:
            raise UsageError(
                f"The {where} redefines the rule {rule.name}.",
                argument="rules",
                found=rule.name,
                advice="Rename yours.",
            )
        if rule.repair != "C":
            raise UsageError(
                f"The {where}: {rule.name} has class {rule.repair}; expected C.",
                argument="rules",
                expected="C",
                found=rule.repair,
            )
    return tuple(several)
