"""Repairs: changes of the steps of a publisher's file that follow from the file itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from datasets_cli.audit.rules.facts import facts_of
from datasets_cli.audit.rules.finding import Finding
from datasets_cli.audit.rules.registry import RULES
from datasets_cli.audit.rules.rows import AuditedRows, streamed_rows
from datasets_cli.audit.rules.rule import NONE, About
from datasets_cli.audit.run import findings_of
from datasets_cli.core.quantities import counted
from datasets_cli.errors import UsageError
from datasets_cli.recipe import Block, Recipe, Source
from datasets_cli.schema.columns import (
    RECORDED_STEP,
    REWARD,
    TERMINATED,
    TRAJECTORY_END,
    TRUNCATED,
    Key,
    column_of,
)
from datasets_cli.schema.shapes import runs_of_rows
from datasets_cli.schema.texts import is_text
from datasets_cli.schema.transitions import (
    SHIFTED,
    Transitions,
    iterate_rows,
    steps_of,
)

MENDED = {
    "false-end": "the step is not an end",
    "impossible-terminal": "the step is truncated, and not terminated",
    "unflagged-reset": "the step is the truncated end of a trajectory",
    "unflagged-jump": "the step is the truncated end of a trajectory",
    "reward-of-wrong-row": "the step has the reward of the next one",
}
"""What becomes of the steps that a rule finds."""
NEW_ENDS = ("impossible-terminal", "unflagged-reset", "unflagged-jump")
"""Rules whose steps become ends that are cut off."""
RULES_MENDED = tuple(rule for rule in RULES if rule.name in MENDED)


@dataclass(frozen=True)
class Repairs:
    """The changes to a file."""

    changes: tuple[tuple[Finding, np.ndarray], ...]
    """The findings of rules with exact repairs, and the steps that each repair changes, int64."""

    @property
    def sentences(self) -> list[str]:
        """The changes, a sentence each."""
        return [
            f"{found.rule}, {counted(len(steps), 'step')} of the file, the first {steps[0]:,}: "
            f"{MENDED[found.rule]}"
            for found, steps in self.changes
        ]

    @property
    def entries(self) -> list[dict[str, Any]]:
        """The manifest's entries: the steps of each rule as runs ``[first, number]``."""
        return [
            {
                **{"rule": found.rule, "version": found.version, "measure": found.measure},
                "steps": runs_of_rows(steps),
            }
            for found, steps in self.changes
        ]

    def applied(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Yield the Blocks of a file with these changes."""
        steps = {found.rule: each for found, each in self.changes}
        if "reward-of-wrong-row" in steps:
            blocks = _with_next_rewards(blocks)
        first = 0
        for block in blocks:
            columns = {key: np.asarray(rows) for key, rows in block.columns.items()}
            count = len(next(iter(columns.values())))
            within = {
                rule: each[(each >= first) & (each < first + count)] - first
                for rule, each in steps.items()
            }
            yield replace(block, columns=_with_ends(columns, count, within))
            first += count


def repairs_of(recipe: Recipe, source: Source) -> Repairs:
    """Return the repairs of a file, found in a pass over all rows."""
    id = f"{recipe.family}/{source.name}"
    if recipe.deferred_frames(source):
        raise _without(id)
    ends = _Ends()
    transitions = Transitions(id, needs_rewards=recipe.has_rewards, final=ends.take_final)
    blocks = (block.columns for block in recipe.blocks(source))
    runs = iterate_rows(transitions, blocks)
    if (first := next(runs, None)) is None:
        raise _without(id)
    columns = tuple(column_of(key, rows) for key, rows in first.items() if not is_text(rows))
    is_shifted = transitions.rule["rule"] == SHIFTED
    about = About(columns, recipe.describe(source).metadata, facts_of(id), is_shifted)

    def rows_of(keys: frozenset[Key]) -> Iterator[AuditedRows]:
        return streamed_rows(chain([first], runs), keys)

    findings = findings_of(about, RULES_MENDED, rows_of)
    _check_proved(id, findings)
    if many := [found for found in findings if found.count > len(found.rows)]:
        raise UsageError(
            f"{id} cannot be repaired: {many[0].rule} finds {many[0].count:,} rows; expected at "
            f"most {len(many[0].rows):,}.",
            id=id,
            expected=len(many[0].rows),
            found=many[0].count,
        )
    return Repairs(tuple((found, ends.steps(found)) for found in findings))


def _check_proved(id: str, findings: list[Finding]) -> None:
    if unproved := [found for found in findings if found.severity != "wrong"]:
        listed = "; ".join(f"{found.rule}: {found}" for found in unproved)
        raise UsageError(
            f"{id} is not repaired: no rule proves which rows are wrong. {listed}.",
            id=id,
            found=unproved,
            advice=f"Look at them: rlds audit {id} --show 3",
        )
    if not findings:
        raise _without(id)


def _without(id: str) -> UsageError:
    return UsageError(
        f"{id} has no defect that can be repaired exactly. Checked: {', '.join(MENDED)}.",
        id=id,
        advice=f"Use {id}.",
    )


class _Ends:
    """The final steps of a file, which are not rows."""

    def __init__(self) -> None:
        self._final: list[np.ndarray] = [NONE]

    def take_final(self, rows: dict[Key, np.ndarray]) -> None:
        """Remember the numbers of final steps."""
        self._final.append(rows[RECORDED_STEP])

    def steps(self, finding: Finding) -> np.ndarray:
        """Return the steps of the file, int64, whose flags are to be changed."""
        final = np.concatenate(self._final)
        steps = steps_of(np.array(finding.rows, np.int64), final)
        if finding.rule == "false-end":  # the flag is in the final step
            steps = steps + np.isin(steps + 1, final)
        return steps - (finding.rule == "unflagged-reset")  # its rows start after the flag


def _with_ends(
    columns: dict[Key, np.ndarray], count: int, steps: dict[str, np.ndarray]
) -> dict[Key, np.ndarray]:
    """Return columns with the flags that they should have; steps: of this block, by rule."""
    flags = {
        key: columns.get(key, np.zeros(count)).reshape(-1).astype(np.bool_)
        for key in (TERMINATED, TRUNCATED, TRAJECTORY_END)
    }
    for key in (TRUNCATED, TRAJECTORY_END):
        flags[key][steps.get("false-end", NONE)] = False
    flags[TERMINATED][steps.get("impossible-terminal", NONE)] = False
    for rule in NEW_ENDS:
        flags[TRUNCATED][steps.get(rule, NONE)] = True
    return {**columns, **flags}


def _with_next_rewards(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield Blocks whose steps have the reward of the step after them."""
    held: Block | None = None
    for block in blocks:
        if held is not None:
            yield _with_rewards(held, block.columns[REWARD][:1])
        held = block
    if held is not None:  # the last step of a file, a final step, keeps its own: none follows it
        yield _with_rewards(held, held.columns[REWARD][-1:])


def _with_rewards(block: Block, following: np.ndarray) -> Block:
    rewards = np.concatenate((block.columns[REWARD][1:], following))
    return replace(block, columns={**block.columns, REWARD: rewards})
