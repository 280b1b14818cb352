"""The API of audit rules, which find defects in the rows of installed datasets.

A rule needs to import only this module. It is a frozen ``Rule``, whose ``begin`` returns its state
for one dataset, a ``RuleState``; docs/audit.md has a complete example. A file for
``rlds audit --rules FILE`` defines ``RULES``, a tuple of rules, like an entry point of the group
``datasets_cli.rules``: ``my-lab = "my_package.rules:RULES"``.
"""

from datasets_cli.audit.rules.finding import Finding
from datasets_cli.audit.rules.rows import AuditedRows
from datasets_cli.audit.rules.rule import About, RowNumbers, Rule, RuleState
from datasets_cli.schema.columns import Key

__all__ = ["About", "AuditedRows", "Finding", "Key", "RowNumbers", "Rule", "RuleState"]
