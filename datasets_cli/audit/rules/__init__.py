"""The rules, a file a group."""

from datasets_cli.audit.rule import Rule
from datasets_cli.audit.rules import columns, duplicates, ends, lengths, rewards, time

RULES: tuple[Rule, ...] = (
    *ends.RULES,
    *columns.RULES,
    *rewards.RULES,
    *duplicates.RULES,
    *time.RULES,
    *lengths.RULES,
)
