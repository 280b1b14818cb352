"""Checks the columns, dtypes, shapes and flags of recorded steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from datasets_cli.errors import SourceError
from datasets_cli.schema.columns import (
    DONE,
    EPISODE,
    EXACT_BELOW,
    RECORDED_STEP,
    REWARD,
    TERMINATED,
    TRAJECTORY_END,
    TRUNCATED,
    Column,
    Key,
    element_type,
    first_rounded,
    show_key,
)
from datasets_cli.schema.texts import (
    TEXT,
    AnyColumn,
    RecordedColumn,
    any_column,
    as_text,
    is_text,
)

StepRows = dict[Key, np.ndarray]

NEXT_OBSERVATION: Key = ("next", "observation")
ROOT_FLAGS: tuple[Key, ...] = (("done",), ("terminated",), ("truncated",))
FLAGS = (TERMINATED, TRUNCATED, TRAJECTORY_END)
REWARD_TYPES = frozenset(
    {
        *("float16", "float32", "float64", "bfloat16"),
        *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
    }
)
MADE_BY_THE_CORE = frozenset({EPISODE, DONE, RECORDED_STEP, *ROOT_FLAGS})


class StepCheck:
    """Checks a stream of recorded steps; every block must have the columns of the first block."""

    def __init__(self, id: str, deferred: Key | None = None, *, needs_rewards: bool = True) -> None:
        self.id = id
        self.has_rewards = needs_rewards
        self.has_successors = False
        """Whether the source contains the observation after each action."""
        self.num_missing_texts = 0
        self._deferred = {deferred} if deferred else set()
        self._needed = (("observation",), ("action",), *([REWARD] if needs_rewards else []))
        self._columns: dict[Key, AnyColumn] | None = None
        self._recorded: dict[Key, RecordedColumn] | None = None  # empty once a dtype changes
        self._row = 0  # the number of source rows so far, for messages

    def checked(self, steps: Mapping[Key, np.ndarray]) -> StepRows:
        """Return steps with all flags bool ``[n]``, rewards ``[n, 1]``, and texts as str."""
        # steps: columns `[n, ...]` as in the Block of a recipe; text as str or bytes.
        try:
            num_steps = self._common_length(steps)
            checked = {
                key: self._text(key, rows) if is_text(rows) else rows for key, rows in steps.items()
            }
            if REWARD in checked:
                checked[REWARD] = self._reward(checked[REWARD])
            checked |= {key: self._flag(key, checked[key]) for key in FLAGS if key in checked}
            self._check_columns(checked)
            now = {key: RecordedColumn.of(key, rows) for key, rows in steps.items()}
            now.pop(TRAJECTORY_END, None)
            self._recorded = now if self._recorded in (None, now) else {}
        except SourceError as error:
            error.id = self.id
            error.prepend(f"{self.id}: ")
            raise
        self._row += num_steps
        return {key: np.zeros(num_steps, np.bool_) for key in FLAGS} | checked

    def recorded(self, names: Mapping[Key, str]) -> tuple[RecordedColumn, ...]:
        """Return the columns of the steps under the source's names; empty without names."""
        columns = (self._recorded or {}).values() if names else ()
        return tuple(replace(each, name=names.get(each.key, each.name)) for each in columns)

    def _common_length(self, steps: Mapping[Key, np.ndarray]) -> int:
        lengths = {key: len(rows) for key, rows in steps.items()}
        if len(set(lengths.values())) != 1:
            listed = ", ".join(f"{show_key(key)} {length}" for key, length in lengths.items())
            raise SourceError(
                f"the columns have different lengths in the block at row {self._row}: {listed}. "
                "The file is damaged, or its format is not the one of its recipe.",
                row=self._row,
                expected="columns of the same length",
                found=listed,
            )
        return next(iter(lengths.values()))

    def _text(self, key: Key, rows: np.ndarray) -> np.ndarray:
        """Return text as str; a missing value becomes ``""`` and is counted."""
        texts = as_text(key, rows)
        if rows.dtype == object:
            self.num_missing_texts += sum(value is None for value in rows.flat)
        return texts

    def _reward(self, rewards: np.ndarray) -> np.ndarray:
        if rewards.ndim == 1:
            rewards = rewards[:, None]
        kind = TEXT if is_text(rewards) else rewards.dtype
        is_whole = rewards.dtype.kind in "iub"
        is_number = is_whole or element_type(rewards.dtype) in REWARD_TYPES
        if rewards.shape[1:] != (1,) or not is_number:
            found = f"{kind} {list(rewards.shape)}"
            raise SourceError(
                f"{show_key(REWARD)}: rewards are {found}; expected one number per step.",
                key=REWARD,
                row=self._row,
                expected="one number per step",
                found=found,
                advice="Convert it, or choose another column.",
            )
        return self._floats(rewards) if is_whole else rewards

    def _floats(self, rewards: np.ndarray) -> np.ndarray:
        """Return whole numbers as float64: TED rewards are floating point."""
        large = np.flatnonzero((rewards >= EXACT_BELOW) | (rewards <= -EXACT_BELOW))
        numbers = zip((self._row + large).tolist(), rewards.flat[large].tolist(), strict=True)
        if wrong := first_rounded(numbers):
            row, number, problem = wrong
            raise SourceError(
                f"{show_key(REWARD)} {problem}.",
                key=REWARD,
                row=row,
                expected="numbers that float64 represents exactly",
                found=number,
                advice="Convert the column to float64 if the rounding is acceptable.",
            )
        return rewards.astype(np.float64)

    def _flag(self, key: Key, flags: np.ndarray) -> np.ndarray:
        if problem := flag_problem(flags, self._row):
            raise SourceError(
                f"{show_key(key)} must be 0 or 1 for every step, found {problem}.",
                key=key,
                row=self._row,
                expected="0 or 1 for every step",
                found=problem,
            )
        return flags.reshape(-1).astype(np.bool_)

    def _check_columns(self, steps: StepRows) -> None:
        columns = {
            key: any_column(key, rows) for key, rows in steps.items() if key != TRAJECTORY_END
        }
        if self._columns is None:
            self._check_names(columns)
            self._columns = columns
            self.has_rewards = any(key[:2] == REWARD for key in columns)
            self.has_successors = any(key[:2] == NEXT_OBSERVATION for key in columns)
        if columns != self._columns:
            for key in sorted(columns.keys() | self._columns.keys()):
                if columns.get(key) != self._columns.get(key):
                    before, now = _show(self._columns.get(key)), _show(columns.get(key))
                    raise SourceError(
                        f"{show_key(key)} changes at row {self._row}: it was {before} and is now "
                        f"{now}.",
                        key=key,
                        row=self._row,
                        expected=before,
                        found=now,
                    )

    def _check_names(self, columns: Mapping[Key, AnyColumn]) -> None:
        numbers = {key for key, column in columns.items() if isinstance(column, Column)}
        for root in self._needed:
            if not any(key[: len(root)] == root for key in numbers | self._deferred):
                is_text_column = any(key[: len(root)] == root for key in columns)
                problem = "is text, or of dtype object" if is_text_column else "is missing"
                listed = ", ".join(map(show_key, sorted(columns)))
                raise SourceError(
                    f"{show_key(root)} {problem}; expected numbers. Found: {listed}.",
                    key=root,
                    expected="numbers",
                    found=listed,
                )
        unwanted = MADE_BY_THE_CORE & columns.keys()
        assert not unwanted, f"a recipe yields {unwanted}, which the core makes"
        parents = {key[:depth] for key in columns for depth in range(1, len(key))}
        if clash := parents & (columns.keys() | MADE_BY_THE_CORE):
            raise SourceError(
                f"{show_key(min(clash))} is both a value and a group of values.",
                key=min(clash),
            )
        shapes = {key: (column.dtype, column.shape) for key, column in columns.items()}
        before = {key: shape for key, shape in shapes.items() if key[0] == "observation"}
        after = {key[1:]: shape for key, shape in shapes.items() if key[:2] == NEXT_OBSERVATION}
        if after and after != before:
            raise SourceError(
                "next.observation has other parts, shapes or dtypes than observation: "
                f"{after}, not {before}.",
                key=NEXT_OBSERVATION,
                expected=before,
                found=after,
            )


def flag_problem(flags: np.ndarray, first: int = 0) -> str:
    """Return why an array is not 0 or 1 for each step; empty for valid flags."""
    # first: the number of its first step.
    if flags.ndim != 1 and flags.shape[1:] != (1,):
        return f"shape {list(flags.shape)}"
    if flags.dtype.kind not in "biufc":
        return f"dtype {flags.dtype}"
    if flags.dtype.kind == "b":
        return ""
    flat = flags.reshape(-1)
    if not (wrong := np.flatnonzero((flat != 0) & (flat != 1))).size:
        return ""
    return f"{flat[wrong[0]]} ({flags.dtype}) in row {first + wrong[0]:,}"


def _show(column: AnyColumn | None) -> str:
    return "missing" if column is None else f"{column.dtype} {list(column.shape)}"
