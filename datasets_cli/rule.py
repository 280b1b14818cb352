"""A rule of the audit: what is looked for in the rows of installed datasets.

This is the one module that a rule imports. A rule is a frozen ``Rule`` whose ``begin`` returns a
state for one dataset:

    begin(about)      -> a RuleState, or None where the dataset has nothing that it looks at
    state.keys        -> the columns that it looks at
    state.observe(rows)   looks at the next rows, in order
    state.conclude(rule)  -> rule.found(rows), or None

A file for ``rlds audit --rules FILE`` defines ``RULES``, a tuple of them, and so does what an entry
point of the group ``datasets_cli.rules`` names. The page docs/audit.md has a whole one.
"""

from __future__ import annotations

from datasets_cli.audit.rules.finding import Finding
from datasets_cli.audit.rules.rows import AuditedRows
from datasets_cli.audit.rules.rule import About, RowNumbers, Rule, RuleState
from datasets_cli.schema.columns import Key

__all__ = ["About", "AuditedRows", "Finding", "Key", "RowNumbers", "Rule", "RuleState"]
