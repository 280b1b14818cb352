"""All rules."""

from datasets_cli.audit.rules import columns, duplicates, ends, rewards, time
from datasets_cli.audit.rules.rule import Rule

RULES: tuple[Rule, ...] = (
    *ends.RULES,
    *columns.RULES,
    *rewards.RULES,
    *duplicates.RULES,
    *time.RULES,
)
