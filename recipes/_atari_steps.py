"""The steps of a DQN Replay run: which rows are steps, and how episodes end.

    terminal   . . . .  .  .  T  . . . .
    row        p p p o0 o1 o2 o3 p p p o0       p: three empty rows before every episode
    step             0  1  2  3        4

Facts: dopamine of June 2019, the time of the data. ``circular_replay_buffer.add`` writes three
empty rows where the row before is terminal, and at the start; ``dqn_agent.end_episode`` marks the
last row of *every* episode terminal, also of one that ``run_experiment`` ended after 27,000 steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from datasets_cli.recipe import CUT, Key, SourceError

from ._atari_order import FRAME, SMALL, Turn
from ._npy import read_rows

if TYPE_CHECKING:
    import numpy as np

NUM_EMPTY = 3
MAX_EPISODE_STEPS = 27_000
EMPTY = -1


class Steps(NamedTuple):
    """The steps of one turn.

    Args:
        turn: whose they are.
        columns: all but the pictures, each ``[n]``, in order.
        stretches: int64 ``[k, 3]``, by slot: the first slot, one past the last, and the number of
            the step there, counted over the whole run; ``EMPTY`` where the rows are empty ones.
        num_limited: episodes that reached the limit of steps.
        num_unknown: episodes that ended without their start being there.
    """

    turn: Turn
    columns: dict[Key, np.ndarray]
    stretches: np.ndarray
    num_limited: int
    num_unknown: int

    @property
    def num_steps(self) -> int:
        """Steps of the turn."""
        return len(self.columns["action",])


def read_steps(turns: list[Turn]) -> Iterator[Steps]:
    """Yield the steps of each turn, in order.

    A terminal step that is its episode's 27,000th is truncated, every other one terminated. The
    last step before rows that are missing is marked ``CUT``.

    Raises:
        SourceError: a file is damaged, or rows that must be empty are not.
    """
    import numpy as np

    num_empty, length, first_step = 0, None, 0
    for number, turn in enumerate(turns):
        slots = turn.slots
        action, reward, terminal = (turn.log.column(store)[slots] for store in SMALL)
        _check_terminal(turn, terminal)
        if not turn.follows:
            num_empty = NUM_EMPTY if turn.begins else _num_empty(turn, action, reward, terminal)
            length = 0 if num_empty else None
        ends = np.flatnonzero(terminal)
        is_empty = _empty_rows(ends, len(terminal), num_empty)
        _check_empty(turn, slots, is_empty & ((action != 0) | (reward != 0) | (terminal != 0)))
        num_before = np.cumsum(~is_empty)  # steps up to each row and including it
        lengths = np.diff(num_before[ends], prepend=-(length or 0))
        limited = lengths == MAX_EPISODE_STEPS
        limited[:1] &= length is not None
        truncated = np.zeros(len(terminal), np.bool_)
        truncated[ends[limited]] = True
        cut = np.zeros(len(terminal), np.bool_)
        if number + 1 < len(turns) and not turns[number + 1].follows:
            cut[np.flatnonzero(~is_empty)[-1:]] = True
        columns: dict[Key, np.ndarray] = {
            ("action",): action,
            ("next", "reward"): reward,
            ("next", "terminated"): (terminal == 1) & ~truncated,
            ("next", "truncated"): truncated,
            CUT: cut,
        }
        yield Steps(
            turn,
            {key: values[~is_empty] for key, values in columns.items()},
            _stretches(turn, slots, is_empty, num_before + first_step),
            int(limited.sum()),
            int(length is None and len(ends) > 0),
        )
        first_step += int(num_before[-1])
        if len(ends):
            length = int(num_before[-1] - num_before[ends[-1]])
            num_empty = max(0, NUM_EMPTY - (len(terminal) - 1 - int(ends[-1])))
        else:
            length = None if length is None else length + int(num_before[-1])
            num_empty = max(0, num_empty - len(terminal))


def _empty_rows(ends: np.ndarray, num_rows: int, num_empty: int) -> np.ndarray:
    """Return which rows are empty, bool ``[num_rows]``: the first ones, and those behind ends."""
    import numpy as np

    is_empty = np.zeros(num_rows, np.bool_)
    is_empty[:num_empty] = True
    for distance in range(1, NUM_EMPTY + 1):
        behind = ends + distance
        is_empty[behind[behind < num_rows]] = True
    return is_empty


def _num_empty(turn: Turn, action: np.ndarray, reward: np.ndarray, terminal: np.ndarray) -> int:
    """Return how many empty rows a turn begins with whose past is missing; the pictures tell."""
    count = 0
    while count < min(NUM_EMPTY, turn.num_rows):
        if action[count] or reward[count] or terminal[count]:
            break
        count += 1
    slots = turn.slots[:count].tolist()
    blank = _blank_slots(turn, set(slots))
    return next((number for number, slot in enumerate(slots) if slot not in blank), count)


def _blank_slots(turn: Turn, slots: set[int]) -> set[int]:
    """Return those of some slots whose picture is all zeros."""
    blank: set[int] = set()
    start = 0
    for frames in read_rows(turn.log.files["observation"], "uint8", (turn.log.capacity, *FRAME)):
        if start > max(slots, default=-1):
            break
        here = [slot for slot in slots if start <= slot < start + len(frames)]
        blank |= {slot for slot in here if not frames[slot - start].any()}
        start += len(frames)
    return blank


def _stretches(
    turn: Turn, slots: np.ndarray, is_empty: np.ndarray, num_before: np.ndarray
) -> np.ndarray:
    """Return where runs of steps, and of empty rows, lie; see ``Steps``."""
    import numpy as np

    changes = np.flatnonzero((is_empty[1:] != is_empty[:-1]) | (slots[1:] == 0)) + 1
    starts = np.concatenate(([0], changes))
    lengths = np.diff(np.concatenate((starts, [len(slots)])))
    step = np.where(is_empty[starts], EMPTY, num_before[starts] - 1)
    stretches = np.stack((slots[starts], slots[starts] + lengths, step), axis=1)
    ordered: np.ndarray = stretches[np.argsort(stretches[:, 0])]
    return ordered


def _check_terminal(turn: Turn, terminal: np.ndarray) -> None:
    if (wrong := terminal[terminal > 1]).size:
        raise SourceError(
            f"{turn.log.files['terminal'].name}: expected 0 or 1 in every row, found {wrong[0]}. "
            "It is damaged."
        )


def _check_empty(turn: Turn, slots: np.ndarray, is_wrong: np.ndarray) -> None:
    if is_wrong.any():
        raise not_empty(turn.log.number, int(slots[is_wrong.argmax()]))


def not_empty(number: int, slot: int) -> SourceError:
    """Return the error of a row that holds something where the writer leaves three empty."""
    return SourceError(
        f"Checkpoint {number}, row {slot}: expected one of the {NUM_EMPTY} empty rows before an "
        "episode, found something else. It is damaged, or another program wrote it; take other "
        "checkpoints with --checkpoints."
    )
