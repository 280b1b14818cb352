"""Converts recorded steps to TED rows: the successor rule and the flags.

A source has steps; a dataset has transitions. If the source contains the observation after each
action, every step is a transition. Otherwise the successor of step t is the observation of step
t + 1, and the last step of a trajectory has no successor:

    step         0    1    2T     3    4    5|     T terminated, | cut off (time limit, end of file)
    transition   0→1  1→2  2→0    3→4  4→5  -
    next.done    .    .    T      .    T'   -      the successor of a terminated step is zeros (no
                                                   method may bootstrap from it); a step that was
                                                   cut off is a final step, not a transition, and
                                                   the step before it, whose successor is real,
                                                   becomes the truncated end.

In a column of text, the successor of a terminated step is ``""``. A transition never spans two
trajectories. This is the rule of D4RL's ``qlearning_dataset``, but without its lost end flag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from datasets_cli.schema.columns import (
    DONE,
    EPISODE,
    RECORDED_STEP,
    TERMINATED,
    TRAJECTORY_END,
    TRUNCATED,
    Key,
)
from datasets_cli.schema.shapes import RowArray
from datasets_cli.schema.steps import ROOT_FLAGS, StepCheck, StepRows
from datasets_cli.schema.texts import is_text

SHIFTED = "following step of the same trajectory"
"""The name of this rule in a manifest."""
NO_EPISODE = -1
"""The episode of a final step that is a trajectory of its own, without a row."""
NO_REWARDS = "the source records no rewards: the dataset has no next.reward, and no returns"


class Transitions:
    """Converts a stream of recorded steps to complete TED rows, in bounded memory."""

    # final: receives the final steps, in order.

    def __init__(
        self,
        id: str,
        deferred: Key | None = None,
        *,
        needs_rewards: bool = True,
        final: Callable[[StepRows], None] = lambda _: None,
    ) -> None:
        self.num_final = 0
        self.num_alone = 0
        """The number of final steps that are a trajectory of their own."""
        self._has_unflagged_end = False
        self._check = StepCheck(id, deferred, needs_rewards=needs_rewards)
        self.recorded = self._check.recorded
        self._final = final
        self._num_steps = self._num_trajectories = 0
        self._held: StepRows | None = None
        self._previous_done = True

    def rows(self, steps: Mapping[Key, np.ndarray]) -> StepRows | None:
        """Return the transitions that these steps complete, or None."""
        # steps: columns `[n, ...]` as in the Block of a recipe; text as str or bytes.
        checked = self._check.checked(steps)
        if not len(checked[TRAJECTORY_END]):
            return None
        if held := self._held:
            checked = {key: np.concatenate((held[key], rows)) for key, rows in checked.items()}
        # The last step is held back: if the source ends here, it ends a trajectory. The successor
        # rule also holds back the step before it, which becomes the end if the last is cut off.
        num_held = 1 if self._check.has_successors else 2
        num_steps = len(checked[TERMINATED])
        ready = max(0, num_steps - num_held)
        # Copies: a view would keep the whole block in memory.
        self._held = {key: rows[ready:].copy() for key, rows in checked.items()}
        return self._emit(checked, ready) if ready else None

    def last_rows(self) -> StepRows | None:
        """Return the remaining transitions; the end of the source ends a trajectory."""
        held, self._held = self._held, None
        if held is None:
            return None
        flags = (TERMINATED, TRUNCATED, TRAJECTORY_END)
        self._has_unflagged_end = not any(held[key][-1] for key in flags)
        held[TRAJECTORY_END][-1] = True
        return self._emit(held, len(held[TRAJECTORY_END]))

    @property
    def notes(self) -> list[str]:
        """Notes for the user about the rows so far."""
        num_missing = self._check.num_missing_texts
        missing = f"{num_missing} texts are missing in the source, and empty here"
        return [missing] * bool(num_missing) + [NO_REWARDS] * (not self._check.has_rewards)

    @property
    def rule(self) -> dict[str, Any]:
        """The manifest's entry about the origin of ``next.observation``."""
        if not self._check.has_successors:
            return {"rule": SHIFTED}
        unflagged = {"unflagged_end": True} if self._has_unflagged_end else {}
        return {"rule": "recorded", **unflagged}

    def _emit(self, steps: StepRows, ready: int) -> StepRows | None:
        """Return the transitions of the first ``ready`` steps; later steps are their successors."""
        if self._check.has_successors:
            return self._complete({key: rows[:ready] for key, rows in steps.items()})
        terminated = steps[TERMINATED]
        done = terminated | steps[TRUNCATED] | steps[TRAJECTORY_END]
        final = done & ~terminated
        # Step t becomes the truncated end if step t + 1 is final, in the same trajectory.
        before_final = np.zeros_like(final)
        before_final[:-1] = final[1:] & ~done[:-1]
        # A trajectory of only a final step has no rows.
        alone = final & np.concatenate(([self._previous_done], done[:-1]))
        self._previous_done = bool(done[ready - 1])
        self._emit_final(steps, final[:ready], alone[:ready], done[:ready])
        kept = np.flatnonzero(~final[:ready])
        complete = {key: rows.take(kept, axis=0) for key, rows in steps.items()}
        complete |= {
            ("next", *key): _following(rows, kept, complete[TERMINATED])
            for key, rows in steps.items()
            if key[0] == "observation"
        }
        complete[TRUNCATED] |= before_final[kept]
        return self._complete(complete) if len(kept) else None

    def _emit_final(
        self, steps: StepRows, final: np.ndarray, alone: np.ndarray, done: np.ndarray
    ) -> None:
        """Hand on the final steps among the first ``len(done)`` steps, flags as recorded."""
        # step      0  1  2|  3|  4  5|      | is cut off, and final
        # episode   0  0  0  -1   1  1
        places, has_rows = np.flatnonzero(final), done & ~alone
        if len(places):
            episodes = self._num_trajectories + np.cumsum(has_rows)[places] - 1
            rows = {
                key: rows.take(places, axis=0)
                for key, rows in steps.items()
                if key != TRAJECTORY_END
            }
            rows |= {key: rows[key][:, None] for key in (TERMINATED, TRUNCATED)}
            rows[EPISODE] = np.where(alone[places], NO_EPISODE, episodes)
            rows[RECORDED_STEP] = self._num_steps + places
            self._final(rows)
        self.num_final += len(places)
        self.num_alone += int(alone.sum())
        self._num_trajectories += int(has_rows.sum())
        self._num_steps += len(done)

    def _complete(self, steps: StepRows) -> StepRows:
        """Return rows with all flags as bool ``[n, 1]``; a cut becomes a truncation."""
        rows = dict(steps)
        terminated = rows[TERMINATED][:, None]
        truncated = rows[TRUNCATED][:, None] | (rows.pop(TRAJECTORY_END)[:, None] & ~terminated)
        flags = {TERMINATED: terminated, TRUNCATED: truncated, DONE: terminated | truncated}
        return rows | flags | {key: np.zeros_like(terminated) for key in ROOT_FLAGS}


def _following(rows: np.ndarray, kept: np.ndarray, terminated: np.ndarray) -> np.ndarray:
    """Return the successors of the steps ``kept``: zeros or ``""`` after a termination."""
    # All other rows have their successor in the next row.
    following = rows.take(kept + 1, axis=0, mode="clip")
    following[terminated] = "" if is_text(rows) else 0
    return following


def iterate_rows(
    transitions: Transitions, blocks: Iterator[Mapping[Key, np.ndarray]]
) -> Iterator[StepRows]:
    """Yield the complete rows of a stream of blocks."""
    for columns in blocks:
        if rows := transitions.rows(columns):
            yield rows
    if rows := transitions.last_rows():
        yield rows


def steps_of(rows: RowArray, final: np.ndarray) -> np.ndarray:
    """Return the source steps of rows, int64, given the final steps."""
    # step    0  1  2|  3  4  5|      | is cut off, and final
    # row     0  1      2  3          rows 2 and 3 are the steps 3 and 4
    before = final - np.arange(len(final))  # the number of rows before each final step
    steps: np.ndarray = rows + np.searchsorted(before, rows, side="right")
    return steps
