"""Which trajectories a view has, as what users ask for says it: places in the table."""

from __future__ import annotations

import difflib
import math
import re
import reprlib
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from datasets_cli.core.quantities import counted
from datasets_cli.errors import OutOfRange, UsageError
from datasets_cli.replay.arguments import whole_number
from datasets_cli.replay.queries.conditions import TrajectoryPredicate
from datasets_cli.replay.queries.expressions import Expression
from datasets_cli.replay.queries.text import TextCondition
from datasets_cli.replay.queries.trajectory import leaves_below
from datasets_cli.replay.samplers.orders import permutation
from datasets_cli.replay.trajectories.table import BLOCK_ROWS, Trajectories
from datasets_cli.schema.columns import TERMINATED, TRUNCATED, Key, rows_per_block, successor_of
from datasets_cli.schema.trajectories import lengths_of, runs_of, trajectory_of
from datasets_cli.store.arrays import Columns, plain_numbers
from datasets_cli.store.dataset import Dataset
from datasets_cli.store.selection import PRESET, Selection


@dataclass(frozen=True)
class FirstSuccess:
    """Trajectories up to their first success; those that begin right after one are left out."""

    flag: str = "next.terminated"

    def runs(self, dataset: Dataset, selection: Selection) -> tuple[np.ndarray, np.ndarray]:
        offsets, whole = dataset.starts, dataset.whole
        key, *others = leaves_below(dataset, [self.flag])
        if others:
            raise UsageError(
                f"first-success:flag={self.flag} names {1 + len(others)} columns; expected one."
            )
        first = np.full(len(selection), len(dataset))
        for start, rows in _blocks(dataset, [key]):
            flagged = np.flatnonzero(_numbers(rows[key]).any(1)) + start
            np.minimum.at(first, trajectory_of(offsets, flagged), flagged)
        if (first == len(dataset)).all() or (lengths_of(whole.starts) == 1).all():
            raise UsageError(
                f"first-success: no step of {dataset.id} has {self.flag}, or all trajectories are "
                "single steps. Name a flag of success: first-success:flag=next.info.success."
            )
        # One that begins with a success goes where the row before it in the dataset is one, too.
        before = whole.starts[selection.numbers] + selection.firsts - 1
        rows = whole.arrays_of(frozenset([key])).gather(before.clip(0))
        follows = _numbers(rows[key]).any(1) & (before >= 0)
        kept = ~(follows & (first == offsets[:-1]))
        lengths = np.minimum(first + 1, offsets[1:]) - offsets[:-1]
        return offsets[:-1][kept], lengths[kept]


@dataclass(frozen=True)
class NoTimeouts:
    """Trajectories without a last step that is truncated alone, or none that have one."""

    whole: int = 0

    def runs(self, dataset: Dataset, selection: Selection) -> tuple[np.ndarray, np.ndarray]:
        offsets, keys = dataset.starts, (TRUNCATED, TERMINATED)
        leaves_below(dataset, keys)  # which says what is missing
        last = dataset.arrays_of(frozenset(keys)).gather(offsets[1:] - 1)
        truncated, terminated = (_numbers(last[key]).any(1) for key in keys)
        is_cut = truncated & ~terminated
        if not is_cut.any():
            raise UsageError(
                f"no-timeouts: no trajectory of {dataset.id} ends with a step that is truncated "
                "and not terminated. There is nothing to leave out."
            )
        lengths = lengths_of(offsets) - is_cut
        kept = ~is_cut if self.whole else lengths > 0
        return offsets[:-1][kept], lengths[kept]


@dataclass(frozen=True)
class NoIdle:
    """Without runs of ``length`` or more steps in which ``of`` changes by at most ``epsilon``."""

    epsilon: float = 0.0
    length: int = 1
    of: str = "observation"

    def runs(self, dataset: Dataset, selection: Selection) -> tuple[np.ndarray, np.ndarray]:
        offsets = dataset.starts
        first, lengths = runs_of(offsets, self._idle(dataset, offsets))
        first, lengths = first[lengths >= self.length], lengths[lengths >= self.length]
        # Rows that are left begin where a trajectory does, or idle ones end; and end likewise.
        starts = np.sort(np.concatenate((offsets[:-1], first + lengths)))
        lengths = np.sort(np.concatenate((offsets[1:], first))) - starts
        return starts[lengths > 0], lengths[lengths > 0]

    def _idle(self, dataset: Dataset, offsets: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the numbers of the steps without a change, int64 ``[k]``, block by block."""
        keys = leaves_below(dataset, [self.of])
        known = leaves_below(dataset, None)
        after = {key: successor_of(key) for key in keys if successor_of(key) in known}
        for start, rows in _blocks(dataset, [*keys, *after.values()]):
            squares: np.ndarray | float = 0.0
            for key in keys:
                values = _numbers(rows[key])
                if key in after:
                    changes = _numbers(rows[after[key]]) - values
                else:  # since the step before, which the first one of a trajectory does not have
                    changes = np.diff(values, axis=0, prepend=np.nan)
                    low, high = np.searchsorted(offsets, (start, start + len(values)))
                    changes[offsets[low:high] - start] = np.nan
                squares = squares + np.square(changes).sum(1)
            first = int(start > 0)  # beside the row of the block before
            yield np.flatnonzero(np.sqrt(squares)[first:] <= self.epsilon) + start + first


Preset = FirstSuccess | NoTimeouts | NoIdle
PRESETS: dict[str, type[Preset]] = {
    "first-success": FirstSuccess,
    "no-timeouts": NoTimeouts,
    "no-idle": NoIdle,
}
FLOAT_BYTES = 8
NAMED = re.compile(r"\s*[a-z]+(-[a-z]+)+\s*(:|$)")
"""How a text begins that names a preset, and is no condition."""
RANGES = {"whole": (0, 1), "epsilon": (0, sys.float_info.max), "length": (1, 2**62)}


def preset_of(text: str) -> tuple[str, Preset]:
    """Return a preset, after its name with all arguments."""
    name, _, rest = "".join(text.split()).partition(":")
    if name == "relabel-goal":
        raise UsageError(
            "relabel-goal changes rewards and ends, and a view only chooses rows. It is a "
            "transform, RelabelGoal(GoalRule.sparse(0.5)), also for preprocess."
        )
    if name not in PRESETS:
        near = difflib.get_close_matches(name, [*PRESETS, "relabel-goal"], 1) or PRESETS
        raise UsageError(f"There is no view {name!r}. Did you mean {' or '.join(near)}?")
    given = vars(PRESETS[name]()).copy()
    try:
        texts = [each.partition("=")[::2] for each in filter(None, rest.split(","))]
        for key, value in texts:
            given[key] = type(given[key])(value)
        if len(dict(texts)) < len(texts) or not all(
            low <= given.get(key, low) <= high for key, (low, high) in RANGES.items()
        ):
            raise ValueError(rest)
    except (KeyError, ValueError) as error:
        raise UsageError(
            f"{name} takes {', '.join(given)}, each once: numbers from 0 on, length from 1 on, "
            f"whole 0 or 1; found {rest!r}."
        ) from error
    arguments = ",".join(f"{key}={value}" for key, value in given.items())
    return f"{name}:{arguments}", PRESETS[name](**given)


def _numbers(rows: np.ndarray) -> np.ndarray:
    """Return rows as numbers float64 ``[n, m]``."""
    numbers = plain_numbers(rows)
    assert numbers is not None, "a leaf of numbers"
    return numbers.reshape(len(numbers), -1).astype(np.float64)


def _blocks(dataset: Dataset, keys: list[Key]) -> Iterator[tuple[int, Columns]]:
    """Yield the first row of each block, which is the last of the one before, and its columns."""
    rows = dataset.arrays_of(frozenset(keys))
    # They are read whatever columns a user chose, and become float64.
    numbers = sum(math.prod(each.shape) for each in dataset.manifest.columns if each.key in keys)
    step = min(BLOCK_ROWS, rows_per_block(numbers * FLOAT_BYTES))
    for start in range(0, len(dataset), step):
        first = max(0, start - 1)
        yield first, rows.run(first, min(start + step, len(dataset)))


TrajectoryNumbers = Iterable[int] | np.ndarray | torch.Tensor
"""Whole numbers, those below 0 counted from the end; or a mask, bool ``[K]``."""

Where = str | TrajectoryPredicate | Callable[[Trajectories], TrajectoryNumbers]
"""A condition as text or of ``traj``; or a function of the table: a mask ``[K]``, or numbers."""


def selected(where: Where, dataset: Dataset, rows: Selection, table: Trajectories) -> Selection:
    """Return what a condition, or a preset, leaves of a dataset or a view."""
    if isinstance(where, str):
        if NAMED.match(where):
            name, preset = preset_of(where)
            return rows.runs(*preset.runs(dataset, rows), f"{PRESET}{name!r})")
        places = np.flatnonzero(TextCondition(where, table).mask())
    elif isinstance(where, TrajectoryPredicate):
        places = np.flatnonzero(where.tree.values(table))
    elif isinstance(where, Expression):
        raise where.unfinished
    elif not callable(where):
        raise UsageError(
            "Trajectories are filtered by a text such as 'return > 300', by a condition such as "
            f"traj.length >= 50, or by a function of the table, not by {reprlib.repr(where)}; "
            "episodes_at() takes numbers and masks."
        )
    elif (chosen := where(table)) is None:  # which elsewhere stands for all trajectories
        raise UsageError(
            "The function that trajectories are filtered by gave None, not a mask or numbers. Does "
            "it lack a return?"
        )
    else:
        places = trajectory_numbers(chosen, len(table))
    name = where if isinstance(where, str) else getattr(where, "__qualname__", str(where))
    return rows.at(places, f"filter({name!r})")


def trajectory_numbers(numbers: TrajectoryNumbers | None, num_trajectories: int) -> np.ndarray:
    """Return which of K trajectories are meant, int64 ``[n]``, in the order given."""
    if numbers is None:
        return np.arange(num_trajectories)
    array = _array(numbers)
    if array.dtype == np.bool_ and array.shape == (num_trajectories,):
        return np.flatnonzero(array)
    if not array.size and array.ndim == 1 and array.dtype != np.bool_:
        return np.zeros(0, np.int64)  # numpy takes an empty list for floats
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise UsageError(
            f"Trajectories are chosen by a list of whole numbers, or by a mask of "
            f"{counted(num_trajectories, 'bool')}, not by {array.dtype} {list(array.shape)}: "
            f"{reprlib.repr(numbers)}."
        )
    outside = array[(array < -num_trajectories) | (array >= num_trajectories)]
    if len(outside):
        raise OutOfRange(
            f"There is no trajectory {outside[0]} among {counted(num_trajectories, 'trajectory')}. "
            f"Expected a number from 0 to {num_trajectories - 1}, or from {-num_trajectories} to "
            "-1, counted from the end."
        )
    array = array.astype(np.int64)
    return np.where(array < 0, array + num_trajectories, array)


def _array(numbers: TrajectoryNumbers) -> np.ndarray:
    if isinstance(numbers, torch.Tensor):
        numbers = numbers.tolist()
    try:
        if isinstance(numbers, Iterable) and not isinstance(numbers, str):
            # Lists of several lengths are a ValueError.
            return numbers if isinstance(numbers, np.ndarray) else np.array([*numbers])
    except ValueError:
        pass
    raise UsageError(
        f"Trajectories are chosen by a list of whole numbers, not by {reprlib.repr(numbers)}; "
        "episode(number) returns one."
    )


def split_places(fractions: tuple[float, ...], num_places: int, seed: int) -> list[np.ndarray]:
    """Return disjoint parts of K trajectories, drawn at random, each in the trajectories' order."""
    is_number = all(
        isinstance(part, int | float) and not isinstance(part, bool) and part >= 0
        for part in fractions
    )
    if not fractions or not is_number or sum(fractions) > 1 + 1e-9:
        raise UsageError(
            "split() takes fractions from 0 on that sum up to at most 1, such as split(0.9) or "
            f"split(0.8, 0.1); found {', '.join(map(reprlib.repr, fractions)) or 'none'}."
        )
    order = permutation(num_places, whole_number("seed", seed, 0)).at(np.arange(num_places))
    # Rounded sums, so that the parts of 0.1 ten times differ by one trajectory at most.
    ends = np.rint(np.cumsum(fractions) * num_places).astype(np.int64).clip(max=num_places)
    has_rest = sum(fractions) < 1 - 1e-9
    return [np.sort(part) for part in np.split(order, ends if has_rest else ends[:-1])]


def best_places(
    count: int | float, by: str | None, table: Trajectories, *, smallest: bool
) -> np.ndarray:
    """Return the first trajectories, or those where a column is the largest, int64 ``[n]``."""
    # They are in the order of the column, best first; of equal ones the earlier is better. Where
    # the column is NaN a trajectory is the last.
    num_best = _count(count, len(table))
    if by is None:
        if smallest:
            raise UsageError("take(smallest=True) needs a column to compare: by='return'.")
        return np.arange(num_best)
    values = table[by]
    if values.ndim > 1:
        raise UsageError(
            f"{by} is {list(values.shape[1:])} numbers of a trajectory, which have no order. "
            "Compare one of them: episodes_at(np.argsort(-trajectories[...][:, 0])[:k])."
        )
    keys = values.astype(np.float64)
    return np.argsort(keys if smallest else -keys, kind="stable")[:num_best]


def _count(count: int | float, num_places: int) -> int:
    there = counted(num_places, "trajectory")
    if not isinstance(count, float):
        if (num_taken := whole_number("count", count, 0)) > num_places:
            raise UsageError(f"take({count}) finds only {there}. Take {num_places} at most.")
        return num_taken
    if not 0 <= count <= 1:
        raise UsageError(
            "take() takes a number of trajectories, such as take(10), or a fraction of them from "
            f"0.0 to 1.0, such as take(0.1); found {count}."
        )
    num_taken = round(count * num_places)
    if count and num_places and not num_taken:
        raise UsageError(
            f"take({count}) of {there} would leave none. Take a fraction of at least "
            f"{1 / num_places:.2g}, or a number: take(1)."
        )
    return num_taken
