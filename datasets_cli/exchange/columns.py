"""Columns as people have them, in the names of a dataset: of all steps, or of one episode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from datasets_cli.errors import UsageError
from datasets_cli.exchange.steps import StepColumns, array_of, check_flags
from datasets_cli.schema.columns import (
    DONE,
    EPISODE,
    REWARD,
    TERMINATED,
    TRAJECTORY_END,
    TRUNCATED,
    Key,
    show_key,
)
from datasets_cli.schema.steps import MADE_BY_THE_CORE, NEXT_OBSERVATION, flag_problem

RETURNED: dict[Key, Key] = {
    ("reward",): REWARD,
    ("terminated",): TERMINATED,
    ("truncated",): TRUNCATED,
    ("next_observation",): NEXT_OBSERVATION,
}
"""What ``step()`` of an environment returns, by the names that people have for it."""


def named_columns(columns: Mapping[Any, Any]) -> StepColumns:
    """Return columns as arrays, each under its key in a dataset."""
    # columns: arrays, tensors or lists by name, by tuple of names, or in dicts in one another. Rows
    # of a dataset keep their `episode`; the other columns that follow from flags are left out.
    leaves = [*_leaves(columns)]
    # Beside next.terminated, terminated is of the step before, as in every dataset.
    are_rows = {TERMINATED, TRUNCATED} <= {key for key, _ in leaves}
    named: StepColumns = {}
    for given, values in leaves:
        key = (*RETURNED.get(given[:1], given[:1]), *given[1:])
        if are_rows and given in MADE_BY_THE_CORE:
            key = given
        elif key in MADE_BY_THE_CORE or key == TRAJECTORY_END:
            raise UsageError(
                f"columns: {show_key(key)} is no column to give: rlds makes it of terminated, "
                "truncated and where trajectories end."
            )
        if key in named:
            raise UsageError(f"columns: {show_key(key)} is given twice. Leave one out.")
        named[key] = _array(key, values)
    if not named:
        raise UsageError("columns: there is none. Expected observation, action, reward and others.")
    for key in MADE_BY_THE_CORE.intersection(named) - {EPISODE}:
        _check_made(key, named.pop(key), named)
    check_reward_name(named)
    return named


def check_reward_name(named: StepColumns) -> None:
    """Refuse columns that seem to have rewards under another name than ``reward``."""
    if REWARD in named:
        return
    roots = (key[1:] if key[:1] == ("next",) else key for key in named if key[:2] != REWARD)
    if near := [".".join(key) for key in roots if key[0].startswith("rew") and len(key) == 1]:
        raise UsageError(
            f"columns: there is no reward, but {near[0]}. Name the rewards 'reward'; where these "
            "are other numbers, choose a name that does not begin with rew."
        )


def _check_made(key: Key, values: np.ndarray, named: StepColumns) -> None:
    """Check that a flag has the values that it gets again, so that it can be left out."""
    given, *ends = (np.ravel(each) != 0 for each in (values, named[TERMINATED], named[TRUNCATED]))
    made = ends[0] | ends[1] if len(ends[0]) == len(ends[1]) and key == DONE else ends[0] & False
    if not np.array_equal(given, made):
        raise UsageError(
            f"columns: {show_key(key)} has other values than rlds makes of next.terminated and "
            "next.truncated. Leave it out, or give it another name to keep it."
        )


def _leaves(columns: Mapping[Any, Any], above: Key = ()) -> Iterator[tuple[Key, Any]]:
    if not isinstance(columns, Mapping):
        raise UsageError(
            f"columns must be a mapping of names to arrays, not {type(columns).__name__}."
        )
    for name, values in columns.items():
        names = name if isinstance(name, tuple) else (name,)
        if isinstance(name, str) and not above:  # dots part its names, as to_numpy() writes them
            names = tuple(name.split("."))
        if not all(isinstance(each, str) and each for each in names) or not names:
            raise UsageError(f"columns: a key is a name or a tuple of names, not {name!r}.")
        key = (*above, *names)
        if not isinstance(values, Mapping):
            yield key, values
        elif hasattr(values, "tolist") and _is_text(values):
            yield key, values.tolist()
        else:
            yield from _leaves(values, key)


def _is_text(values: Any) -> bool:
    """Return whether an entry of a TensorDict is text."""
    from tensordict import is_non_tensor  # which is imported, as there is an entry

    return bool(is_non_tensor(values))


def _array(key: Key, values: Any) -> np.ndarray:
    """Return values as an array of numbers, or of texts as objects."""
    array = array_of(values, f"columns: {show_key(key)}")
    if array.dtype.kind in "US" and array is not values:
        array = np.asarray(values, object)  # numpy's own texts lose zeros at their ends
    if array.dtype.kind == "U":
        array = array.astype(object)
    if array.dtype.kind == "O" and not all(
        isinstance(each, str | bytes) or each is None for each in array.flat
    ):
        raise UsageError(
            f"columns: {show_key(key)} is of type object, with values that are no text. Expected "
            "numbers of one shape in each row, or text: convert it, as rlds stores no pickles."
        )
    return array


def check_lengths(columns: StepColumns, what: str) -> int:
    """Return the number of steps that columns have, all of them the same."""
    lengths = {key: len(values) if values.ndim else -1 for key, values in columns.items()}
    if len(set(lengths.values())) > 1 or -1 in lengths.values():
        listed = ", ".join(
            f"{show_key(key)} {'a single number' if n < 0 else f'{n:,}'}"
            for key, n in lengths.items()
        )
        raise UsageError(f"{what}: expected one row a step in every column, found {listed}.")
    return next(iter(lengths.values()))


def episode_steps(columns: Mapping[Any, Any], what: str) -> StepColumns:
    """Return the steps of one whole episode, its last one marked."""
    named = named_columns(columns)
    actions = (key for key in named if key[0] == "action")
    of_steps = REWARD if REWARD in named else next(actions, None)
    size = len(named[of_steps]) if of_steps and named[of_steps].ndim else 0
    if not size:
        raise UsageError(
            f"{what} has no step: expected an action, and a reward where there are rewards, for "
            "each of one step or more."
        )
    observed = [key for key in named if key[0] == "observation"]
    longer = [key for key in observed if named[key].ndim and len(named[key]) == size + 1]
    if longer and longer == observed and not any(key[:2] == NEXT_OBSERVATION for key in named):
        # T + 1 observations: the last one follows the last action.
        following = {("next", *key): named[key][1:] for key in observed}
        named |= {key: named[key][:-1] for key in observed} | following
    for key in (TERMINATED, TRUNCATED):
        if key in named and not named[key].ndim:  # of the episode: what its last step returned
            if problem := flag_problem(named[key].reshape(1)):
                raise UsageError(f"{what}: {show_key(key)} must be 0 or 1, found {problem}.")
            flags = np.zeros(size, np.bool_)
            flags[-1] = named[key].item()
            named[key] = flags
    check_lengths(named, what)
    numbers = named.pop(EPISODE, np.zeros(1))
    if (numbers != numbers[0]).any():
        raise UsageError(
            f"{what} is one trajectory; found rows of the episodes {np.unique(numbers)[:9]}. Add "
            "each alone."
        )
    try:
        ends = check_flags(np.arange(size) == size - 1, named)
    except UsageError as error:
        error.prepend(f"{what} is one trajectory: ")
        raise
    return {**named, TRAJECTORY_END: ends}
