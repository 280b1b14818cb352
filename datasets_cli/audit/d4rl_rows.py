"""The rows that ``d4rl.qlearning_dataset`` makes of a file, found in the dataset of that file.

D4RL reads the steps of the file in order. It leaves out the last step and each step at a time
limit. The successor of a step is the observation of the next step, also after a terminal:

    step          0    1    2T   3    4    5|   6    7        T terminal, | time limit, 7 the last
    row of D4RL   0→1  1→2  2→3  3→4  4→5       6→7
    row of ours   0→1  1→2  2→-  3→4  4→5       6→7           - zeros

Where the file records successors, every step is a row of ours. Where it does not, a step that ends
a trajectory without being a terminal (5, 7) is not a row; the row before it is marked truncated.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from datasets_cli.core.quantities import counted
from datasets_cli.errors import Unsupported
from datasets_cli.store.manifest import Manifest

NO_ROW = -1


@dataclass(frozen=True)
class D4RLRows:
    """The rows that D4RL has."""

    # rows: int64 `[M]`, rows of the dataset in their order.
    # following: int64 `[M]`, the row whose observation is the successor of each, or `NO_ROW` where
    # that is the `next.observation` of the row itself.
    # timeouts: bool `[M]`, whether D4RL leaves out the step after each, which is not terminal.

    rows: np.ndarray
    following: np.ndarray
    timeouts: np.ndarray


@dataclass(frozen=True)
class FileSteps:
    """The steps of a file, reconstructed from its dataset."""

    # rows: int64 `[S]`, the row of each step, or `NO_ROW`.
    # terminals: bool `[S]`.
    # timeouts: bool `[S]`, True for each step that is not a row.

    rows: np.ndarray
    terminals: np.ndarray
    timeouts: np.ndarray


def d4rl_rows(
    manifest: Manifest, terminals: np.ndarray, timeouts: np.ndarray, skipped: int
) -> D4RLRows:
    """Return the rows that D4RL creates from the source file of a dataset."""
    # A `UserWarning` says where the successor of a terminal, which no method uses, may be another.
    # terminals: `next.terminated` of its rows, bool `[N]`.
    # timeouts: `next.truncated` of its rows, bool `[N]`.
    # skipped: the number of final steps that are a trajectory alone.
    if manifest.recipe.get("family") != "d4rl" or manifest.parent is not None:
        raise Unsupported(
            f"like='d4rl' needs a published file of D4RL; {manifest.id} is not one.",
            argument="like",
            id=manifest.id,
            advice="Call qlearning_dataset() without like.",
        )
    is_counted = "trajectory_ends" in manifest.metadata  # the file has no timeouts
    # With a limit of more than one step only the last step can be a trajectory without a row.
    has_one_more = skipped > 0 and is_counted
    steps = _file_steps(manifest, terminals, timeouts, has_one_more)
    if skipped and not is_counted:
        _check_skipped(manifest.id, skipped, terminals & ~timeouts)
    limits = steps.timeouts
    if is_counted:
        limits = counted_limits(steps.terminals, manifest.metadata.get("max_episode_steps"))
    kept = np.flatnonzero(~limits[:-1])
    rows, following = steps.rows[kept], steps.rows[kept + 1]
    lost = (rows == NO_ROW) | (steps.terminals[kept] & (following == NO_ROW))
    if lost.any():
        step = int(kept[lost][0])
        raise Unsupported(
            f"{manifest.id}: like='d4rl' needs step {step} of the file and its successor, which "
            "the dataset lacks: the file has no timeouts, and d4rl.qlearning_dataset counts one "
            "step less up to the time limit after each terminal.",
            argument="like",
            id=manifest.id,
            row=step,
            advice="Use qlearning_dataset() without like; its trajectories end at "
            f"{manifest.metadata['trajectory_ends']}.",
        )
    is_before_final = np.append(limits[:-1], True)[kept + 1]
    return D4RLRows(rows, following, is_before_final & ~steps.terminals[kept])


def _file_steps(
    manifest: Manifest, terminals: np.ndarray, timeouts: np.ndarray, has_one_more: bool
) -> FileSteps:
    """Return the steps of a file; ``has_one_more`` after them is not a row."""
    num_rows = len(terminals)
    if manifest.successors.get("rule") == "recorded":
        return FileSteps(np.arange(num_rows), terminals, timeouts)
    # Where a trajectory does not end by a terminal, a step that is not a row follows its last row.
    before_final = timeouts & ~terminals
    num_before = np.cumsum(before_final) - before_final  # final steps before each row
    place = np.arange(num_rows) + num_before
    num_steps = num_rows + int(before_final.sum()) + has_one_more
    rows = np.full(num_steps, NO_ROW)
    rows[place] = np.arange(num_rows)
    step_terminals, step_timeouts = np.zeros(num_steps, np.bool_), np.ones(num_steps, np.bool_)
    step_terminals[place] = terminals
    step_timeouts[place] = timeouts & terminals  # a row with both flags has both in the file
    return FileSteps(rows, step_terminals, step_timeouts)


def _check_skipped(id: str, skipped: int, only_terminal: np.ndarray) -> None:
    """Check that skipped trajectories of one step, whose positions are unknown, do not matter."""
    # only_terminal: rows that are terminals and not at a time limit, bool `[N]`.
    if only_terminal[-1]:
        raise Unsupported(
            f"{id}: like='d4rl' needs to know whether the last row, a terminal, is the last step "
            "of the file, which d4rl.qlearning_dataset drops: one of "
            f"{counted(skipped, 'trajectory')} of one step that is not a row may follow.",
            argument="like",
            id=id,
            row=len(only_terminal) - 1,
            advice="Use qlearning_dataset() without like.",
        )
    if only_terminal.any():
        warnings.warn(
            f"{id}: next_observations of at most {min(skipped, int(only_terminal.sum()))} "
            "terminals differ from d4rl.qlearning_dataset's, which has the first observation of "
            "the next trajectory there: the dataset is without "
            f"{counted(skipped, 'trajectory')} of one step. No method uses the successor of a "
            "terminal; all other values are D4RL's.",
            stacklevel=6,  # the caller of ExperienceReplay.qlearning_dataset
        )


def counted_limits(terminals: np.ndarray, max_episode_steps: int | None) -> np.ndarray:
    """Return which steps D4RL takes for time limits where a file has no timeouts, bool ``[S]``.

        limit 4      0  1  2  3| 0  1  2T 1  2  3| 0  1 ...

    It counts the step after a terminal as 1 and all others from 0, so that a limit comes one step
    early after a terminal.
    """
    limits = np.zeros(len(terminals), np.bool_)
    if max_episode_steps is None:
        return limits
    first, count = 0, 0
    for last in [*np.flatnonzero(terminals).tolist(), len(terminals) - 1]:
        limits[first + max_episode_steps - 1 - count : last + 1 : max_episode_steps] = True
        # A terminal that is at a limit, too, is a limit to D4RL.
        first, count = last + 1, 0 if limits[last] else 1
    return limits
