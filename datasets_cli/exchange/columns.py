"""Parses a user's columns into steps under the keys of a dataset: all steps, or one episode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from datasets_cli.errors import UsageError, WrongRows, wrong_value
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
    wrong_column,
)
from datasets_cli.schema.steps import MADE_BY_THE_CORE, NEXT_OBSERVATION, flag_problem

RETURNED: dict[Key, Key] = {
    ("reward",): REWARD,
    ("terminated",): TERMINATED,
    ("truncated",): TRUNCATED,
    ("next_observation",): NEXT_OBSERVATION,
}
"""The usual names of the values that ``step()`` returns, and their keys in a dataset."""


def named_columns(columns: Mapping[Any, Any]) -> StepColumns:
    """Return columns as arrays, each under its key in a dataset."""
    # columns: arrays, tensors or lists by name, by tuple of names, or in nested dicts. Rows of a
    # dataset keep their `episode`; all columns computed from flags are dropped.
    leaves = [*_leaves(columns)]
    # Next to next.terminated, terminated is the flag of the step before, as in every dataset.
    are_rows = {TERMINATED, TRUNCATED} <= {key for key, _ in leaves}
    named: StepColumns = {}
    for path, values in leaves:
        key = (*RETURNED.get(path[:1], path[:1]), *path[1:])
        if are_rows and path in MADE_BY_THE_CORE:
            key = path
        elif key in MADE_BY_THE_CORE or key == TRAJECTORY_END:
            raise WrongRows(
                f"columns: {show_key(key)} cannot be set: rlds computes it from terminated, "
                "truncated and the ends of trajectories.",
                key=key,
                advice="Leave it out.",
            )
        if key in named:
            raise WrongRows(
                f"columns: two columns are {show_key(key)}.", key=key, advice="Leave one out."
            )
        named[key] = _array(key, values)
    if not named:
        raise WrongRows(
            "columns is empty.",
            argument="columns",
            expected="observation, action, reward and others",
            found={},
            advice="Pass at least observation and action.",
        )
    for key in MADE_BY_THE_CORE.intersection(named) - {EPISODE}:
        _check_made(key, named.pop(key), named)
    check_reward_name(named)
    return named


def check_reward_name(named: StepColumns) -> None:
    """Reject columns without ``reward`` where another name begins with ``rew``."""
    if REWARD in named:
        return
    roots = (key[1:] if key[:1] == ("next",) else key for key in named if key[:2] != REWARD)
    if near := [".".join(key) for key in roots if key[0].startswith("rew") and len(key) == 1]:
        raise WrongRows(
            f"columns: reward is missing, and there is a column {near[0]}.",
            key=REWARD,
            expected="reward",
            found=near[0],
            advice="Name the rewards 'reward'. Rename any other column that begins with rew.",
        )


def _check_made(key: Key, values: np.ndarray, named: StepColumns) -> None:
    found, *ends = (np.ravel(each) != 0 for each in (values, named[TERMINATED], named[TRUNCATED]))
    computed = (
        ends[0] | ends[1] if len(ends[0]) == len(ends[1]) and key == DONE else ends[0] & False
    )
    if not np.array_equal(found, computed):
        raise WrongRows(
            f"columns: {show_key(key)} differs from the values that rlds computes from "
            "next.terminated and next.truncated.",
            key=key,
            advice="Leave it out, or rename it to keep it.",
        )


def _leaves(columns: Mapping[Any, Any], above: Key = ()) -> Iterator[tuple[Key, Any]]:
    if not isinstance(columns, Mapping):
        raise wrong_value("columns", "a mapping of names to arrays", type(columns))
    for name, values in columns.items():
        names = name if isinstance(name, tuple) else (name,)
        if isinstance(name, str) and not above:  # names separated by dots, as to_numpy() returns
            names = tuple(name.split("."))
        if not all(isinstance(each, str) and each for each in names) or not names:
            raise wrong_value("columns", "a mapping whose keys are names or tuples of names", name)
        key = (*above, *names)
        if not isinstance(values, Mapping):
            yield key, values
        elif hasattr(values, "tolist") and _is_text(values):
            yield key, values.tolist()
        else:
            yield from _leaves(values, key)


def _is_text(values: Any) -> bool:
    from tensordict import is_non_tensor  # imported already: the entry is of its TensorDict

    return bool(is_non_tensor(values))


def _array(key: Key, values: Any) -> np.ndarray:
    """Return values as an array of numbers, or of texts as objects."""
    array = array_of(values, f"columns: {show_key(key)}", key=key)
    if array.dtype.kind in "US" and array is not values:
        array = np.asarray(values, object)  # numpy's own texts lose zeros at their ends
    if array.dtype.kind == "U":
        array = array.astype(object)
    if array.dtype.kind == "O" and not all(
        isinstance(each, str | bytes) or each is None for each in array.flat
    ):
        raise wrong_column(
            key,
            "numbers or text",
            "Python objects",
            "Convert it to an array of numbers or of str.",
            owner="columns",
        )
    return array


def check_lengths(columns: StepColumns, what: str) -> int:
    """Return the number of steps, once all columns have the same length."""
    lengths = {key: len(values) if values.ndim else -1 for key, values in columns.items()}
    if len(set(lengths.values())) > 1 or -1 in lengths.values():
        listed = ", ".join(
            f"{show_key(key)} {'a single number' if n < 0 else f'{n:,}'}"
            for key, n in lengths.items()
        )
        raise WrongRows(
            f"{what}: expected one row for each step in every column, found {listed}.", found=listed
        )
    return next(iter(lengths.values()))


def episode_steps(columns: Mapping[Any, Any], what: str) -> StepColumns:
    """Return the steps of one whole episode; ``TRAJECTORY_END`` is set at the last one."""
    named = named_columns(columns)
    actions = (key for key in named if key[0] == "action")
    of_steps = REWARD if REWARD in named else next(actions, None)
    size = len(named[of_steps]) if of_steps and named[of_steps].ndim else 0
    if not size:
        raise WrongRows(
            f"{what} has no steps.",
            expected="one or more steps, each with an action",
            found=0,
            advice="Add steps with actions, and with rewards unless the dataset has no rewards.",
        )
    observed = [key for key in named if key[0] == "observation"]
    longer = [key for key in observed if named[key].ndim and len(named[key]) == size + 1]
    if longer and longer == observed and not any(key[:2] == NEXT_OBSERVATION for key in named):
        # T + 1 observations: the last one follows the last action.
        following = {("next", *key): named[key][1:] for key in observed}
        named |= {key: named[key][:-1] for key in observed} | following
    for key in (TERMINATED, TRUNCATED):
        if key in named and not named[key].ndim:
            named[key] = _flags_of_episode(key, named[key], size, what)
    check_lengths(named, what)
    numbers = named.pop(EPISODE, np.zeros(1))
    if (numbers != numbers[0]).any():
        raise WrongRows(
            f"{what} must be one trajectory; found rows of the episodes {np.unique(numbers)[:9]}.",
            key=EPISODE,
            found=np.unique(numbers).tolist(),
            advice="Add one episode at a time.",
        )
    try:
        ends = check_flags(np.arange(size) == size - 1, named)
    except UsageError as error:
        error.prepend(f"{what} must be one trajectory: ")
        raise
    return {**named, TRAJECTORY_END: ends}


def _flags_of_episode(key: Key, flag: np.ndarray, num_steps: int, what: str) -> np.ndarray:
    """Return the flags of all steps, bool ``[T]``, from the flag of the last step."""
    if problem := flag_problem(flag.reshape(1)):
        raise wrong_column(key, "0 or 1", problem, owner=what)
    flags = np.zeros(num_steps, np.bool_)
    flags[-1] = flag.item()
    return flags
