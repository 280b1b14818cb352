"""TED rows from what a source recorded: the successor rule, the flags, the checks.

A source gives steps; a dataset holds transitions. Where a source records the observation that
follows each action, every step is a transition. Where it does not, the successor of step t is the
observation of step t + 1, and the last step of a trajectory has none:

    step         0    1    2T     3    4    5|     T terminated, | cut off (time limit, end of file)
    transition   0→1  1→2  2→0    3→4  4→5  -
    next.done    .    .    T      .    T'   -      the successor of a terminated step is zeros (no
                                                   method may bootstrap from it); a step that was
                                                   cut off is dropped, and the one before it, whose
                                                   successor is real, becomes the truncated end.

Where a column is text, the successor of a terminated step is ``""``. Nothing is ever glued across a
trajectory boundary. This is the rule of D4RL's ``qlearning_dataset`` without its lost end flag.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from datasets_cli.errors import SourceError
from datasets_cli.store.schema.columns import (
    DONE,
    EPISODE,
    REWARD,
    TERMINATED,
    TRAJECTORY_END,
    TRUNCATED,
    Column,
    Key,
    show_key,
)
from datasets_cli.store.schema.element_types import element_type
from datasets_cli.store.schema.texts import (
    TEXT,
    AnyColumn,
    TextColumn,
    any_column,
    as_text,
    is_text,
    type_name,
)

Rows = dict[Key, np.ndarray]

NEXT_OBSERVATION: Key = ("next", "observation")
ROOT_FLAGS: tuple[Key, ...] = (("done",), ("terminated",), ("truncated",))
SHIFTED = "following step of the same trajectory"
"""What a manifest calls the rule drawn above."""
FLAGS = (TERMINATED, TRUNCATED, TRAJECTORY_END)
REWARD_TYPES = frozenset(
    {
        *("float16", "float32", "float64", "bfloat16"),
        *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
    }
)
MADE_BY_THE_CORE = frozenset({EPISODE, DONE, *ROOT_FLAGS})


class Transitions:
    """Turns a stream of recorded steps into complete TED rows, in bounded memory.

    Args:
        id: named in every message.
        deferred: a column whose rows come later, if there is one; see ``frame_table``.
    """

    def __init__(self, id: str, deferred: Key | None = None) -> None:
        self.id = id
        self._deferred = {deferred} if deferred else set()
        self.num_dropped = 0
        self.num_skipped_trajectories = 0
        self.num_missing_texts = 0
        self._columns: dict[Key, AnyColumn] | None = None
        self._recorded = False
        self._held: Rows | None = None
        self._row = 0  # source rows read, for messages
        self._previous_done = True

    def rows(self, steps: Mapping[Key, np.ndarray]) -> Rows | None:
        """Return the transitions that are certain after these steps, or None if there are none yet.

        Args:
            steps: columns ``[n, ...]`` as a recipe's Block has them; text as str or bytes.

        Raises:
            SourceError: a column is missing, ragged or of a new type, or a flag is not 0 or 1; or
                an entry of an object array is no text.
        """
        checked = self._check(steps)
        if not len(checked[TRAJECTORY_END]):
            return None
        if held := self._held:
            checked = {key: np.concatenate((held[key], rows)) for key, rows in checked.items()}
        # The last step is held back: if the source ends here, it ends a trajectory. By the
        # successor rule the one before it is, too: if the last step is cut off it becomes the end.
        num_held = 1 if self._recorded else 2
        num_steps = len(checked[TERMINATED])
        ready = max(0, num_steps - num_held)
        # Copies: a view would keep the whole block in memory.
        self._held = {key: rows[ready:].copy() for key, rows in checked.items()}
        return self._emit(checked, ready) if ready else None

    def last_rows(self) -> Rows | None:
        """Return the transitions that were held back; the end of the source ends a trajectory."""
        held, self._held = self._held, None
        if held is None:
            return None
        held[TRAJECTORY_END][-1] = True
        return self._emit(held, len(held[TRAJECTORY_END]))

    @property
    def notes(self) -> list[str]:
        """What a person should know of the rows so far."""
        missing = f"{self.num_missing_texts} texts are missing in the source, and empty here"
        return [missing] if self.num_missing_texts else []

    @property
    def rule(self) -> dict[str, Any]:
        """The manifest's account of where ``next.observation`` comes from."""
        return {
            "rule": "recorded" if self._recorded else SHIFTED,
            "dropped_steps": self.num_dropped,
            "skipped_trajectories": self.num_skipped_trajectories,
        }

    def _check(self, steps: Mapping[Key, np.ndarray]) -> Rows:
        """Return steps with all flags ``[n]``, reward ``[n, 1]``, and unchanging columns."""
        num_steps = self._common_length(steps)
        checked = {
            key: self._text(key, rows) if is_text(rows) else rows for key, rows in steps.items()
        }
        if REWARD in checked:
            checked[REWARD] = self._reward(checked[REWARD])
        checked |= {key: self._flag(key, checked[key]) for key in FLAGS if key in checked}
        self._check_columns(checked)
        self._row += num_steps
        return {key: np.zeros(num_steps, np.bool_) for key in FLAGS} | checked

    def _common_length(self, steps: Mapping[Key, np.ndarray]) -> int:
        lengths = {key: len(rows) for key, rows in steps.items()}
        if len(set(lengths.values())) != 1:
            listed = ", ".join(f"{show_key(key)} {length}" for key, length in lengths.items())
            raise SourceError(
                f"{self.id}: the columns have different lengths from row {self._row} on: {listed}. "
                "The file is damaged or not what its recipe expects."
            )
        return next(iter(lengths.values()))

    def _text(self, key: Key, rows: np.ndarray) -> np.ndarray:
        """Return text as str; a value that is missing is ``""``, and counted."""
        try:
            texts = as_text(key, rows)
        except SourceError as error:
            raise SourceError(f"{self.id}: {error}") from error
        if rows.dtype == object:
            self.num_missing_texts += sum(value is None for value in rows.flat)
        return texts

    def _reward(self, rewards: np.ndarray) -> np.ndarray:
        if rewards.dtype.kind in "iub":
            rewards = rewards.astype(np.float64)  # TED rewards are floating point; this is lossless
        if rewards.ndim == 1:
            rewards = rewards[:, None]
        if rewards.shape[1:] != (1,) or element_type(rewards.dtype) not in REWARD_TYPES:
            raise SourceError(
                f"{self.id}: rewards are {type_name(rewards)} {list(rewards.shape)}; "
                "expected one number per step."
            )
        return rewards

    def _flag(self, key: Key, flags: np.ndarray) -> np.ndarray:
        if flags.ndim == 2 and flags.shape[1] == 1:
            flags = flags[:, 0]
        found = ""
        if flags.ndim != 1:
            found = f"shape {list(flags.shape)}"
        elif flags.dtype.kind not in "biufc":
            found = f"element type {flags.dtype}"
        elif len(wrong := np.flatnonzero((flags != 0) & (flags != 1))):
            found = f"{flags[wrong[0]]} in row {self._row + wrong[0]}"
        if found:
            raise SourceError(
                f"{self.id}: {show_key(key)} must be 0 or 1 for every step, found {found}."
            )
        return flags.astype(np.bool_)

    def _check_columns(self, steps: Rows) -> None:
        try:
            found = {
                key: any_column(key, rows) for key, rows in steps.items() if key != TRAJECTORY_END
            }
        except SourceError as error:
            raise SourceError(f"{self.id}: {error}") from error
        if self._columns is None:
            self._check_names(found)
            self._columns = found
            self._recorded = any(key[:2] == NEXT_OBSERVATION for key in found)
        if found != self._columns:
            for key in sorted(found.keys() | self._columns.keys()):
                if found.get(key) != self._columns.get(key):
                    raise SourceError(
                        f"{self.id}: {show_key(key)} changes at row {self._row}: it was "
                        f"{_show(self._columns.get(key))} and is now {_show(found.get(key))}."
                    )

    def _check_names(self, found: Mapping[Key, AnyColumn]) -> None:
        numbers = {key for key, column in found.items() if isinstance(column, Column)}
        for root in (("observation",), ("action",), REWARD):
            if not any(key[: len(root)] == root for key in numbers | self._deferred):
                raise SourceError(
                    f"{self.id}: there is no {show_key(root)}, which must have numbers. "
                    f"Found only: {', '.join(show_key(key) for key in sorted(found))}."
                )
        unwanted = MADE_BY_THE_CORE & found.keys()
        assert not unwanted, f"a recipe yields {unwanted}, which the core makes"
        parents = {key[:depth] for key in found for depth in range(1, len(key))}
        if clash := parents & (found.keys() | MADE_BY_THE_CORE):
            raise SourceError(
                f"{self.id}: {show_key(min(clash))} is both a value and a group of values."
            )
        shapes = {key: (_type(column), column.shape) for key, column in found.items()}
        before = {key: shape for key, shape in shapes.items() if key[0] == "observation"}
        after = {key[1:]: shape for key, shape in shapes.items() if key[:2] == NEXT_OBSERVATION}
        if after and after != before:
            raise SourceError(
                f"{self.id}: next.observation has other parts or shapes or types than observation: "
                f"{after}, not {before}."
            )

    def _emit(self, steps: Rows, ready: int) -> Rows | None:
        """Return the transitions of the first ``ready`` steps; later ones only inform them."""
        if self._recorded:
            return self._complete({key: rows[:ready] for key, rows in steps.items()})
        terminated = steps[TERMINATED]
        done = terminated | steps[TRUNCATED] | steps[TRAJECTORY_END]
        dropped = done & ~terminated
        # Step t becomes the truncated end where step t + 1 is dropped and of the same trajectory.
        before_dropped = np.zeros_like(dropped)
        before_dropped[:-1] = dropped[1:] & ~done[:-1]
        # A trajectory of one step that is dropped has no row.
        starts = np.concatenate(([self._previous_done], done[:-1]))
        self._previous_done = bool(done[ready - 1])
        self.num_dropped += int(dropped[:ready].sum())
        self.num_skipped_trajectories += int((dropped & starts)[:ready].sum())
        following = {
            ("next", *key): _following(rows, done)
            for key, rows in steps.items()
            if key[0] == "observation"
        }
        kept = np.flatnonzero(~dropped[:ready])
        complete = {key: rows.take(kept, axis=0) for key, rows in (steps | following).items()}
        complete[TRUNCATED] |= before_dropped[kept]
        return self._complete(complete) if len(kept) else None

    def _complete(self, steps: Rows) -> Rows:
        """Return rows with every flag as bool ``[n, 1]``; a cut is a truncation."""
        rows = dict(steps)
        terminated = rows[TERMINATED][:, None]
        truncated = rows[TRUNCATED][:, None] | (rows.pop(TRAJECTORY_END)[:, None] & ~terminated)
        rows[TERMINATED] = terminated
        rows[TRUNCATED] = truncated
        rows[DONE] = terminated | truncated
        for key in ROOT_FLAGS:
            rows[key] = np.zeros_like(terminated)
        return rows


def _following(rows: np.ndarray, done: np.ndarray) -> np.ndarray:
    """Return each step's successor ``[n, ...]``; zeros, or ``""``, where the trajectory is done."""
    nothing = "" if is_text(rows) else 0
    following = np.empty_like(rows)
    following[:-1] = rows[1:]
    following[-1:] = nothing
    following[done] = nothing
    return following


def _type(column: AnyColumn) -> str:
    return TEXT if isinstance(column, TextColumn) else column.dtype


def _show(column: AnyColumn | None) -> str:
    return "missing" if column is None else f"{_type(column)} {list(column.shape)}"


def iterate_rows(
    transitions: Transitions, blocks: Iterator[Mapping[Key, np.ndarray]]
) -> Iterator[Rows]:
    """Yield the complete rows of a whole stream of blocks."""
    for columns in blocks:
        rows = transitions.rows(columns)
        if rows is not None:
            yield rows
    rows = transitions.last_rows()
    if rows is not None:
        yield rows
