"""A rule of the audit: what is looked for in the rows of installed datasets.

This is the one module that a rule imports. A rule is a frozen ``Rule``, and its ``begin`` returns
what it keeps of one dataset, a ``RuleState``; the page docs/audit.md has a whole one. A file for
``rlds audit --rules FILE`` defines ``RULES``, a tuple of rules, and so does what an entry point of
the group ``datasets_cli.rules`` names: ``my-lab = "my_package.rules:RULES"``.
"""

from datasets_cli.audit.rules.finding import Finding
from datasets_cli.audit.rules.rows import AuditedRows
from datasets_cli.audit.rules.rule import About, RowNumbers, Rule, RuleState
from datasets_cli.schema.columns import Key

__all__ = ["About", "AuditedRows", "Finding", "Key", "RowNumbers", "Rule", "RuleState"]
