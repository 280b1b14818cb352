"""What a rule keeps of a million rows, every one of which is as wrong as can be."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest

from datasets_cli.audit.rules.facts import facts_of
from datasets_cli.audit.rules.registry import RULES
from datasets_cli.audit.rules.rows import AuditedRows
from datasets_cli.audit.rules.rule import About, Rule
from datasets_cli.schema.columns import column_of
from datasets_cli.schema.texts import is_text
from tests.audit.test_rules import KINDS, UNCLIPPED

MOST_BYTES = 8 << 20
NUM_ROWS, BLOCK = 1_000_000, 1 << 16
ROWS_BY_KEY = {
    ("observation",): np.zeros((BLOCK, 27), np.float32),
    ("action",): np.ones((BLOCK, 2), np.float32),
    ("info", "qpos"): np.arange(3.0 * BLOCK).reshape(BLOCK, 3),
    ("info", "goal"): np.ones((BLOCK, 2), np.float32),
    UNCLIPPED: np.ones((BLOCK, 1), np.float32),
    ("info", "timestamp"): -np.arange(float(BLOCK)),
    ("info", "episode_index"): np.ones((BLOCK, 1), np.int64),
    ("info", "instruction"): np.array([""] * BLOCK, object),
    ("next", "observation"): np.ones((BLOCK, 27), np.float32),
    ("next", "reward"): np.ones((BLOCK, 1), np.float32),
    ("next", "terminated"): np.ones((BLOCK, 1), np.bool_),
}

METADATA = {
    "fps": 30,
    "trajectory_lengths": [9] * (NUM_ROWS // 4),
    "without_last_observation": {"rows": [0, 5], "episodes": 2},
    "stats": {"observation": {"min": [1] * 27, "q01": [0] * 27}},
}


def blocks(length: int, is_terminated: bool) -> Iterator[AuditedRows]:
    """Yield trajectories of so many rows, in blocks as an audit reads them."""
    columns = dict(ROWS_BY_KEY) | {("next", "terminated"): np.full((BLOCK, 1), is_terminated)}
    starts = np.arange(0, NUM_ROWS + BLOCK + length, length)
    for first in range(0, NUM_ROWS, BLOCK):
        yield AuditedRows(first, columns, starts)


@pytest.mark.parametrize(("length", "is_terminated"), [(1, True), (4, False)])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_what_a_rule_keeps_is_bounded(rule: Rule, length: int, is_terminated: bool) -> None:
    texts = tuple(key for key, rows in ROWS_BY_KEY.items() if is_text(rows))
    columns = tuple(column_of(key, r) for key, r in ROWS_BY_KEY.items() if key not in texts)
    metadata = METADATA | {"max_episode_steps": length // 2 or 1}
    about = About(columns, metadata, facts_of(KINDS[rule.name][0]), True, texts, True)
    state = rule.begin(about)
    assert state is not None, "the columns here are what it looks at"
    tracemalloc.start()
    try:
        for rows in blocks(length, is_terminated):
            state.observe(rows)
        del rows
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < MOST_BYTES
