"""Where trajectories end among steps: told by flags, lengths or numbers; never guessed."""

from __future__ import annotations

from typing import Any

import numpy as np

from datasets_cli.errors import UsageError, argument
from datasets_cli.own.steps import StepColumns
from datasets_cli.schema.columns import TERMINATED, TRUNCATED


def trajectory_ends(
    columns: StepColumns, num_steps: int, ends: Any, lengths: Any, episode: Any
) -> np.ndarray:
    """Return which steps are the last of a trajectory, bool ``[N]``."""
    given = {"ends": ends, "lengths": lengths, "episode": episode}
    told = [name for name, value in given.items() if value is not None]
    if len(told) > 1:
        raise UsageError(
            f"{' and '.join(map(argument, told))} both say where trajectories end. Give one."
        )
    if ends is not None:
        return check_flags(_of_flags(ends, num_steps), columns)
    if lengths is not None:
        return check_flags(_of_lengths(lengths, num_steps), columns)
    if episode is not None:
        return check_flags(_of_numbers(episode, num_steps), columns)
    if not (TERMINATED in columns and TRUNCATED in columns):
        raise UsageError(
            "Nothing says where trajectories end. Give "
            f"{argument('lengths')} (steps of each trajectory), {argument('ends')} (a flag for "
            f"each step), {argument('episode')} (a number for each step), or the columns "
            "terminated and truncated."
        )
    return flagged_ends(columns, num_steps)


def flagged_ends(columns: StepColumns, num_steps: int) -> np.ndarray:
    """Return where a step is terminated or truncated; values are checked where they are written."""
    flags = np.zeros(num_steps, np.bool_)
    for key in (TERMINATED, TRUNCATED):
        if key in columns and num_steps:
            flags |= (columns[key] != 0).reshape(num_steps, -1).any(1)
    return flags


def _of_flags(ends: Any, num_steps: int) -> np.ndarray:
    flags = np.asarray(ends)
    if flags.shape == (num_steps, 1):
        flags = flags[:, 0]
    if flags.shape != (num_steps,) or not np.isin(flags, (0, 1)).all():
        raise UsageError(
            f"{argument('ends')}: expected 0 or 1 for each of {num_steps:,} steps, found "
            f"{flags.dtype} {list(flags.shape)}."
        )
    return flags.astype(np.bool_)


def _of_lengths(lengths: Any, num_steps: int) -> np.ndarray:
    counts = np.asarray(lengths)
    if counts.ndim != 1 or counts.dtype.kind not in "iu" or not len(counts) or counts.min() < 1:
        raise UsageError(
            f"{argument('lengths')}: expected whole numbers of 1 or more, found {counts.dtype} "
            f"{list(counts.shape)}{f', {counts.min()} among them' if counts.size else ''}."
        )
    if (total := int(counts.sum())) != num_steps:
        raise UsageError(
            f"{argument('lengths')}: expected lengths that are {num_steps:,} together, the steps "
            f"of the columns; found {total:,}."
        )
    flags = np.zeros(num_steps, np.bool_)
    flags[np.cumsum(counts) - 1] = True
    return flags


def _of_numbers(episode: Any, num_steps: int) -> np.ndarray:
    numbers = np.asarray(episode)
    if numbers.shape == (num_steps, 1):
        numbers = numbers[:, 0]
    if numbers.shape != (num_steps,) or numbers.dtype.kind not in "iu":
        raise UsageError(
            f"{argument('episode')}: expected a whole number for each of {num_steps:,} steps, "
            f"found {numbers.dtype} {list(numbers.shape)}."
        )
    flags = np.ones(num_steps, np.bool_)
    flags[:-1] = numbers[1:] != numbers[:-1]
    # Each number once among the last steps: a second time, its steps are not side by side.
    values, counts = np.unique(numbers[flags], return_counts=True)
    if (twice := values[counts > 1]).size:
        raise UsageError(
            f"{argument('episode')}: the steps of episode {twice[0]} are not side by side. Sort "
            "the rows by episode and step."
        )
    return flags


def check_flags(ends: np.ndarray, columns: StepColumns, first: int = 0) -> np.ndarray:
    """Return where trajectories end, once no flag is known to end one elsewhere."""
    # first: the number of the first of these steps.
    flagged = flagged_ends(columns, len(ends)) & ~ends
    if (wrong := np.flatnonzero(flagged)).size:
        raise UsageError(
            f"Step {first + wrong[0]:,} is terminated or truncated, where what was given says that "
            "the trajectory goes on. Correct one of the two."
        )
    return ends
