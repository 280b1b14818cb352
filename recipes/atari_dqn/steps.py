"""The steps of a DQN Replay run: which rows are steps, and how episodes end.

    terminal   . . . .  .  .  T  . . . .
    row        p p p o0 o1 o2 o3 p p p o0       p: one of three empty rows before every episode
    step             0  1  2  3        4

Facts: dopamine of June 2019, the time of the data. ``circular_replay_buffer.add`` writes three
empty rows after a terminal row, and at the start; ``dqn_agent.end_episode`` marks the last row of
*every* episode terminal, even if ``run_experiment`` ended it after 27,000 steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from datasets_cli.recipe import TRAJECTORY_END, Key, SourceError

from .segments import NUM_EMPTY, SMALL, LogSegment

MAX_EPISODE_STEPS = 27_000
EMPTY = -1


class Steps(NamedTuple):
    """The steps of one segment."""

    # columns: each `[n]`, in order, without the frames.
    # stretches: int64 `[k, 3]`, by slot: the first slot, one past the last, and the number of its
    # step, counted over the whole run; `EMPTY` for empty rows.

    segment: LogSegment
    columns: dict[Key, np.ndarray]
    stretches: np.ndarray
    num_limited: int
    num_unknown: int

    @property
    def num_steps(self) -> int:
        """Steps of the segment."""
        return len(self.columns["action",])


class Before(NamedTuple):
    """The state at the beginning of a segment: empty rows to come, and the unfinished episode."""

    num_empty: int
    length: int | None
    num_steps: int


def read_steps(segments: list[LogSegment]) -> Iterator[Steps]:
    """Yield the steps of each segment, in order."""
    # A terminal step that is the 27,000th of its episode is truncated, every other one terminated.
    # The last step before missing rows is marked `TRAJECTORY_END`.
    before = Before(0, None, 0)
    for number, segment in enumerate(segments):
        is_cut = number + 1 < len(segments) and not segments[number + 1].follows
        steps, before = _read_segment(segment, before, is_cut)
        yield steps


def _read_segment(segment: LogSegment, before: Before, is_cut: bool) -> tuple[Steps, Before]:
    """Return a segment's steps and the state after them; ``is_cut`` if rows are missing there."""
    slots = segment.slots
    action, reward, terminal = (segment.log.column(store)[slots] for store in SMALL)
    if (wrong := terminal > 1).any():
        raise _not_a_flag(segment, terminal, int(wrong.argmax()))
    has_content = (action != 0) | (reward != 0) | (terminal != 0)
    if not segment.follows:
        before = Before(segment.num_empty, 0 if segment.num_empty else None, before.num_steps)
    ends = np.flatnonzero(terminal)
    is_empty = _empty_rows(ends, len(terminal), before.num_empty)
    if (is_wrong := is_empty & has_content).any():
        raise not_empty(segment.log.number, int(slots[is_wrong.argmax()]))
    num_before = np.cumsum(~is_empty)  # steps of the segment up to and including each row
    # The length of each episode that ends here; the first may start in an earlier segment.
    limited = np.diff(num_before[ends], prepend=-(before.length or 0)) == MAX_EPISODE_STEPS
    limited[:1] &= before.length is not None  # else its length is unknown
    truncated = np.zeros(len(terminal), np.bool_)
    truncated[ends[limited]] = True
    cut = np.zeros(len(terminal), np.bool_)
    cut[np.flatnonzero(~is_empty)[-1:]] = is_cut  # at the last step
    columns: dict[Key, np.ndarray] = {
        ("action",): action,
        ("next", "reward"): reward,
        ("next", "terminated"): (terminal == 1) & ~truncated,
        ("next", "truncated"): truncated,
        TRAJECTORY_END: cut,
    }
    steps = Steps(
        segment,
        {key: values[~is_empty] for key, values in columns.items()},
        _stretches(slots, is_empty, before.num_steps + num_before - 1),
        int(limited.sum()),
        int(before.length is None and len(ends) > 0),
    )
    return steps, _state_after(before, ends, num_before)


def _not_a_flag(segment: LogSegment, terminal: np.ndarray, row: int) -> SourceError:
    path, found = segment.log.files["terminal"], int(terminal[row])
    return SourceError(
        f"{path.name}: expected 0 or 1 in every row, found {found}. It is damaged.",
        path=path,
        row=int(segment.slots[row]),
        expected=[0, 1],
        found=found,
    )


def _state_after(before: Before, ends: np.ndarray, num_before: np.ndarray) -> Before:
    """Return the state after a segment, given the rows in which episodes end."""
    num_rows, num_steps = len(num_before), int(num_before[-1])
    if len(ends):
        last = int(ends[-1])
        # Three empty rows follow the last end; some of them may be in the next segment.
        num_empty, length = NUM_EMPTY - (num_rows - 1 - last), num_steps - int(num_before[last])
        return Before(max(0, num_empty), length, before.num_steps + num_steps)
    all_steps = None if before.length is None else before.length + num_steps
    return Before(max(0, before.num_empty - num_rows), all_steps, before.num_steps + num_steps)


def _empty_rows(ends: np.ndarray, num_rows: int, num_empty: int) -> np.ndarray:
    """Return which rows are empty, bool ``[num_rows]``: the first ones and three after an end."""
    is_empty = np.zeros(num_rows, np.bool_)
    is_empty[:num_empty] = True
    for distance in range(1, NUM_EMPTY + 1):
        after = ends + distance
        is_empty[after[after < num_rows]] = True
    return is_empty


def _stretches(slots: np.ndarray, is_empty: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Return the runs of steps and of empty rows by slot; see ``Steps``."""
    # slots: of each row, int64 `[n]`.
    # is_empty: which rows are empty, bool `[n]`.
    # step: the number of each other row's step, int64 `[n]`.
    # A stretch ends where empty rows begin or end, and where the ring returns to slot 0.
    changes = np.flatnonzero((is_empty[1:] != is_empty[:-1]) | (slots[1:] == 0)) + 1
    starts = np.concatenate(([0], changes))
    lengths = np.diff(np.concatenate((starts, [len(slots)])))
    first_steps = np.where(is_empty[starts], EMPTY, step[starts])
    stretches = np.stack((slots[starts], slots[starts] + lengths, first_steps), axis=1)
    return stretches[np.argsort(stretches[:, 0])]


def not_empty(number: int, slot: int) -> SourceError:
    """Return the error of a row with content among the three empty rows before an episode."""
    return SourceError(
        f"Checkpoint {number}, row {slot}: expected one of the {NUM_EMPTY} empty rows before an "
        "episode, found content. It is damaged, or another program wrote it.",
        row=slot,
        expected="an empty row",
        advice="Choose other checkpoints with --checkpoints.",
    )
