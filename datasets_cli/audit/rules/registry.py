"""All rules."""

from datasets_cli.audit.rules import columns, duplicates, ends, lengths, rewards, statistics, time
from datasets_cli.audit.rules.rule import Rule

RULES: tuple[Rule, ...] = (
    *ends.RULES,
    *columns.RULES,
    *rewards.RULES,
    *duplicates.RULES,
    *time.RULES,
    *lengths.RULES,
    *statistics.RULES,
)
