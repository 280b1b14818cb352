"""Where trajectories end among steps: told by flags, lengths or numbers; never guessed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from datasets_cli.errors import UsageError, argument, by_reader
from datasets_cli.own.steps import StepColumns, array_of
from datasets_cli.schema.columns import TERMINATED, TRUNCATED, show_key
from datasets_cli.schema.steps import flag_problem


def trajectory_ends(
    columns: StepColumns, num_steps: int, ends: Any, lengths: Any, episode: Any
) -> np.ndarray:
    """Return which steps are the last of a trajectory, bool ``[N]``."""
    given = {"ends": ends, "lengths": lengths, "episode": episode}
    names = [name for name, values in given.items() if values is not None]
    if len(names) > 1:
        told = " and ".join(map(argument, names))
        raise UsageError(f"{told} both say where trajectories end. Give one.")
    for name in names:
        array = array_of(given[name], argument(name))
        numbers = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
        marks = MARKED[name](argument(name), numbers, num_steps)
        return check_flags(marks, columns, 0, name != "ends")
    if not (TERMINATED in columns and TRUNCATED in columns):
        raise UsageError(
            "Nothing says where trajectories end. Give "
            f"{argument('lengths')} (steps of each trajectory), {argument('ends')} (a flag for "
            f"each step), {argument('episode')} (a number for each step), or the columns "
            "terminated and truncated."
        )
    return flagged_ends(columns, num_steps)


def flagged_ends(columns: StepColumns, num_steps: int, first: int = 0) -> np.ndarray:
    """Return where a step is terminated or truncated, once both are flags."""
    # first: the number of the first of these steps.
    ends = np.zeros(num_steps, np.bool_)
    for key in (TERMINATED, TRUNCATED):
        if key in columns:
            ends |= _of_flags(show_key(key), columns[key], num_steps, first)
    return ends


def _of_flags(name: str, flags: np.ndarray, num_steps: int, first: int = 0) -> np.ndarray:
    problem = flag_problem(flags, first)
    if problem or len(flags) != num_steps:
        found = problem or f"{flags.dtype} {list(flags.shape)}"
        raise UsageError(f"{name}: expected 0 or 1 for each of {num_steps:,} steps, found {found}.")
    return flags.reshape(-1).astype(np.bool_)


def _of_lengths(name: str, counts: np.ndarray, num_steps: int) -> np.ndarray:
    if not counts.size:
        raise UsageError(f"{name}: expected the steps of one trajectory or more, found none.")
    if counts.ndim != 1 or counts.dtype.kind not in "iu" or (counts < 1).any():
        among = f", {counts.min()} among them" if counts.size and counts.dtype.kind in "iu" else ""
        raise UsageError(
            f"{name}: expected whole numbers of 1 or more, found {counts.dtype} "
            f"{list(counts.shape)}{among}."
        )
    if (total := sum(counts.tolist())) != num_steps:  # numpy's own sum may overflow
        raise UsageError(
            f"{name}: expected lengths that are {num_steps:,} together, the steps "
            f"of the columns; found {total:,}."
        )
    return marked(counts)


def _of_numbers(name: str, numbers: np.ndarray, num_steps: int) -> np.ndarray:
    if numbers.shape != (num_steps,):
        raise UsageError(
            f"{name}: expected a whole number for each of {num_steps:,} steps, "
            f"found {numbers.dtype} {list(numbers.shape)}."
        )
    return marked(episode_lengths([numbers], name))


def marked(lengths: np.ndarray) -> np.ndarray:
    """Return which steps are the last of trajectories of some lengths, bool ``[N]``."""
    flags = np.zeros(int(lengths.sum()), np.bool_)
    flags[np.cumsum(lengths) - 1] = True
    return flags


def episode_lengths(runs: Iterable[np.ndarray], name: str = "episode") -> np.ndarray:
    """Return the steps of each trajectory, int64 ``[K]``, by runs of numbers that tell them."""
    values, lengths = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for run in runs:
        numbers = run[:, 0] if run.ndim == 2 and run.shape[1] == 1 else run
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
            raise UsageError(
                f"{name}: expected a whole number for each step, found {run.dtype} "
                f"{list(run.shape)}."
            )
        numbers = numbers.astype(np.int64)
        firsts = np.flatnonzero(np.diff(numbers, prepend=~numbers[:1]))
        counts = np.diff(firsts, append=len(numbers))
        if len(firsts) and values[-1][-1:].tolist() == numbers[:1].tolist():
            lengths[-1][-1] += counts[0]  # the last trajectory of the run before goes on
            firsts, counts = firsts[1:], counts[1:]
        if len(firsts):
            values.append(numbers[firsts])
            lengths.append(counts)
    # Each number once: a second time, its steps are not side by side.
    told, times = np.unique(np.concatenate(values), return_counts=True)
    if (twice := told[times > 1]).size:
        raise UsageError(
            f"{name}: the steps of episode {twice[0]} are not side by side. Sort "
            "the rows by episode and step."
        )
    return np.concatenate(lengths)


def check_flags(
    ends: np.ndarray, columns: StepColumns, first: int = 0, may_be_cut: bool = False
) -> np.ndarray:
    """Return where trajectories end, once no flag is known to say anything else."""
    # first: the number of the first of these steps. may_be_cut: the last one may end the file alone
    flagged = flagged_ends(columns, len(ends), first)
    # Where truncated is given it is kept: an end without a flag would become a truncation.
    unflagged = ends & ~flagged & (TRUNCATED in columns)
    if may_be_cut and TERMINATED in columns:
        unflagged[-1:] = False
    if not (wrong := np.flatnonzero((flagged & ~ends) | unflagged)).size:
        return ends
    if unflagged[wrong[0]]:
        leave = by_reader("--map next.truncated=", 'map={"next.truncated": ""} to import')
        raise UsageError(
            f"Step {first + wrong[0]:,} ends a trajectory by what was given, and its flags say "
            "neither terminated nor truncated. Flags are kept as given: set one of them where a "
            f"trajectory ends{by_reader(' (--map next.terminated=COLUMN)', '')}, or leave "
            f"truncated out ({leave}) where trajectories are cut off."
        )
    terminations = {key: columns[key] for key in (TERMINATED,) if key in columns}
    key = TERMINATED if flagged_ends(terminations, len(ends))[wrong[0]] else TRUNCATED
    option = f"{show_key(key)}="
    leave = by_reader(f"--map {option}", f'map={{"{show_key(key)}": ""}} to import')
    raise UsageError(
        f"Step {first + wrong[0]:,} is {key[-1]}, where what was given says that the trajectory "
        f"goes on. Correct one of the two, or leave {key[-1]} out ({leave})."
    )


MARKED: dict[str, Callable[[str, np.ndarray, int], np.ndarray]] = {
    "ends": _of_flags,
    "lengths": _of_lengths,
    "episode": _of_numbers,
}
