"""The trajectories of views: by conditions, presets, numbers, random splits, or the best."""

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
from datasets_cli.errors import OutOfRange, UsageError, WrongRows, WrongSize, wrong_value
from datasets_cli.replay.arguments import whole_number
from datasets_cli.replay.queries.conditions import TextCondition, TrajectoryPredicate
from datasets_cli.replay.queries.expressions import Expression
from datasets_cli.replay.queries.trajectory import leaves_below
from datasets_cli.replay.samplers.orders import permutation
from datasets_cli.replay.trajectories.trajectory_table import (
    BLOCK_ROWS,
    Trajectories,
    sorted_places,
)
from datasets_cli.schema.columns import TERMINATED, TRUNCATED, Key, rows_per_block, successor_of
from datasets_cli.schema.shapes import LengthArray, OffsetArray, RowArray
from datasets_cli.schema.trajectories import lengths_of, runs_of, trajectory_of
from datasets_cli.store.arrays import Columns, plain_numbers
from datasets_cli.store.dataset import Dataset
from datasets_cli.store.selection import PRESET, Selection


@dataclass(frozen=True)
class FirstSuccess:
    """Trajectories up to their first success, without the ones that continue a success.

    flag    . . x x . x         of two trajectories, of 3 and 3 rows
    rows    x x x . . .         the second begins with a success right after another one
    """

    flag: str = "next.terminated"

    def runs(self, dataset: Dataset, selection: Selection) -> tuple[RowArray, LengthArray]:
        offsets, whole = dataset.starts, dataset.whole
        key, *others = leaves_below(dataset, [self.flag])
        if others:
            raise UsageError(
                f"first-success:flag={self.flag} names {1 + len(others)} columns; expected one.",
                argument="flag",
                expected="one column",
                found=[key, *others],
                advice="Write all names of the flag, such as flag=next.info.success.",
            )
        # The first flagged row of each trajectory; len(dataset) if it has none.
        first = np.full(len(selection), len(dataset))
        for start, rows in _blocks(dataset, [key]):
            flagged = np.flatnonzero(_numbers(rows[key]).any(1)) + start
            np.minimum.at(first, trajectory_of(offsets, flagged), flagged)
        if (first == len(dataset)).all() or (lengths_of(whole.starts) == 1).all():
            raise WrongRows(
                f"first-success: no step of {dataset.id} has {self.flag}, or all trajectories are "
                "single steps.",
                id=dataset.id,
                key=key,
                advice="Name a flag of success, such as first-success:flag=next.info.success, or "
                "flag=info.dones for robomimic.",
            )
        # Leave out a trajectory whose first row is a success and follows a success in the dataset.
        before = whole.starts[selection.numbers] + selection.firsts - 1
        rows = whole.arrays_of(frozenset([key])).gather(before.clip(0))
        follows = _numbers(rows[key]).any(1) & (before >= 0)
        kept = ~(follows & (first == offsets[:-1]))
        # Up to the flagged row, or to the end of a trajectory without one.
        lengths = np.minimum(first + 1, offsets[1:]) - offsets[:-1]
        return offsets[:-1][kept], lengths[kept]


@dataclass(frozen=True)
class NoTimeouts:
    """Trajectories without a last step that is truncated and not terminated.

    With ``whole``, trajectories that have such a step are left out.
    """

    whole: int = 0

    def runs(self, dataset: Dataset, selection: Selection) -> tuple[RowArray, LengthArray]:
        offsets, keys = dataset.starts, (TRUNCATED, TERMINATED)
        leaves_below(dataset, keys)  # raises if one is missing
        last = dataset.arrays_of(frozenset(keys)).gather(offsets[1:] - 1)
        truncated, terminated = (_numbers(last[key]).any(1) for key in keys)
        is_cut = truncated & ~terminated
        if not is_cut.any():
            raise WrongRows(
                f"no-timeouts: no trajectory of {dataset.id} ends with a step that is truncated "
                "and not terminated.",
                id=dataset.id,
                key=TRUNCATED,
                advice="Read the dataset without this preset.",
            )
        lengths = lengths_of(offsets) - is_cut
        kept = ~is_cut if self.whole else lengths > 0
        return offsets[:-1][kept], lengths[kept]


@dataclass(frozen=True)
class NoIdle:
    """Trajectories without long runs of steps in which a leaf hardly changes.

    change  . . x . . . x       idle runs of 2 and 3 steps
    rows    x x x . . . x       length=3
    """

    epsilon: float = 0.0
    length: int = 1
    of: str = "observation"

    def runs(self, dataset: Dataset, selection: Selection) -> tuple[RowArray, LengthArray]:
        offsets = dataset.starts
        first, lengths = runs_of(offsets, self._idle(dataset, offsets))
        first, lengths = first[lengths >= self.length], lengths[lengths >= self.length]
        # The remaining rows start at a trajectory's first row or after an idle run, and stop at a
        # trajectory's end or before an idle run. Sorted, starts and stops are in pairs.
        starts = np.sort(np.concatenate((offsets[:-1], first + lengths)))
        lengths = np.sort(np.concatenate((offsets[1:], first))) - starts
        return starts[lengths > 0], lengths[lengths > 0]

    def _idle(self, dataset: Dataset, offsets: OffsetArray) -> Iterator[RowArray]:
        """Yield the rows of idle steps, block by block."""
        keys = leaves_below(dataset, [self.of])
        known = leaves_below(dataset, None)
        after = {key: successor_of(key) for key in keys if successor_of(key) in known}
        for start, rows in _blocks(dataset, [*keys, *after.values()]):
            squares: np.ndarray | float = 0.0
            for key in keys:
                values = _numbers(rows[key])
                if key in after:
                    changes = _numbers(rows[after[key]]) - values
                else:  # from the step before, which the first step of a trajectory does not have
                    changes = np.diff(values, axis=0, prepend=np.nan)
                    low, high = np.searchsorted(offsets, (start, start + len(values)))
                    changes[offsets[low:high] - start] = np.nan
                squares = squares + np.square(changes).sum(1)
            first = int(start > 0)  # the first row is the last one of the block before
            yield np.flatnonzero(np.sqrt(squares)[first:] <= self.epsilon) + start + first


Preset = FirstSuccess | NoTimeouts | NoIdle
PRESETS: dict[str, type[Preset]] = {
    "first-success": FirstSuccess,
    "no-timeouts": NoTimeouts,
    "no-idle": NoIdle,
}
FLOAT_BYTES = 8
NAMED = re.compile(r"\s*[a-z]+(-[a-z]+)+\s*(:|$)")
"""Matches the start of a text that names a preset, not a condition."""
RANGES = {"whole": (0, 1), "epsilon": (0, sys.float_info.max), "length": (1, 2**62)}


def preset_of(text: str) -> tuple[str, Preset]:
    """Return the name of a preset with all arguments, and the preset."""
    name, _, rest = "".join(text.split()).partition(":")
    if name not in PRESETS:
        near = difflib.get_close_matches(name, PRESETS, 1) or PRESETS
        raise UsageError(
            f"No view named {name!r}.",
            argument="where",
            expected=[*PRESETS],
            found=name,
            advice=f"Did you mean {' or '.join(near)}?",
        )
    arguments = vars(PRESETS[name]()).copy()
    try:
        texts = [each.partition("=")[::2] for each in filter(None, rest.split(","))]
        for key, value in texts:
            arguments[key] = type(arguments[key])(value)
        if len(dict(texts)) < len(texts) or not all(
            low <= arguments.get(key, low) <= high for key, (low, high) in RANGES.items()
        ):
            raise ValueError(rest)
    except (KeyError, ValueError) as error:
        raise UsageError(
            f"{name} takes {', '.join(arguments)}, each at most once; found {rest!r}.",
            argument="where",
            expected=[*arguments],
            found=rest,
            advice="epsilon is a number of at least 0, length a whole number of at least 1, and "
            "whole 0 or 1.",
        ) from error
    text = ",".join(f"{key}={value}" for key, value in arguments.items())
    return f"{name}:{text}", PRESETS[name](**arguments)


def _numbers(rows: np.ndarray) -> np.ndarray:
    """Return rows as float64 ``[n, m]``."""
    numbers = plain_numbers(rows)
    assert numbers is not None, "a leaf of numbers"
    return numbers.reshape(len(numbers), -1).astype(np.float64)


def _blocks(dataset: Dataset, keys: list[Key]) -> Iterator[tuple[int, Columns]]:
    """Yield blocks as their first row and their columns; each begins with the row before it."""
    rows = dataset.arrays_of(frozenset(keys))
    # Sized as float64, which the numbers are converted to.
    numbers = sum(math.prod(each.shape) for each in dataset.manifest.columns if each.key in keys)
    step = min(BLOCK_ROWS, rows_per_block(numbers * FLOAT_BYTES))
    for start in range(0, len(dataset), step):
        first = max(0, start - 1)
        yield first, rows.run(first, min(start + step, len(dataset)))


NumbersOrMask = Iterable[int] | np.ndarray | torch.Tensor
"""Numbers of trajectories, negative ones counted from the end; or a mask, bool ``[K]``."""

Where = str | TrajectoryPredicate | Callable[[Trajectories], NumbersOrMask]
"""A condition as text or of ``traj``, or a function of the table to numbers or a mask."""


def selected(where: Where, dataset: Dataset, rows: Selection, table: Trajectories) -> Selection:
    """Return the rows of a dataset or a view that match a condition or a preset."""
    if isinstance(where, str):
        if NAMED.match(where):
            name, preset = preset_of(where)
            return rows.runs(*preset.runs(dataset, rows), f"{PRESET}{name!r})")
        places = np.flatnonzero(TextCondition(where, table).mask())
    elif isinstance(where, TrajectoryPredicate):
        places = np.flatnonzero(where.tree.values(table))
    elif isinstance(where, Expression):
        raise where.not_a_condition
    elif not callable(where):
        raise wrong_value(
            "where",
            "a text such as 'return > 300', a condition, or a function of the table",
            where,
            "Pass numbers and masks to episodes_at().",
        )
    elif (chosen := where(table)) is None:  # elsewhere None means all trajectories
        raise UsageError(
            "The function of the table returned None; expected a mask or numbers.",
            argument="where",
            expected="a mask or numbers",
            found="None",
            advice="Add a return statement.",
        )
    else:
        places = trajectory_numbers(chosen, len(table))
    name = where if isinstance(where, str) else getattr(where, "__qualname__", str(where))
    return rows.at(places, f"filter({name!r})")


def trajectory_numbers(numbers: NumbersOrMask | None, num_trajectories: int) -> np.ndarray:
    """Return the numbers of the selected trajectories, int64 ``[n]``, from 0 to K - 1."""
    if numbers is None:
        return np.arange(num_trajectories)
    array = _array(numbers)
    if array.dtype == np.bool_ and array.shape == (num_trajectories,):
        return np.flatnonzero(array)
    if not array.size and array.ndim == 1 and array.dtype != np.bool_:
        return np.zeros(0, np.int64)  # numpy reads an empty list as float64
    if array.ndim != 1 or array.dtype.kind not in "iu":
        expected = f"whole numbers, or a mask of {counted(num_trajectories, 'bool')}"
        found = f"{array.dtype} {list(array.shape)}"
        raise wrong_value("numbers", expected, found)
    outside = array[(array < -num_trajectories) | (array >= num_trajectories)]
    if len(outside):
        expected = f"{-num_trajectories} to {num_trajectories - 1}"
        raise wrong_value("numbers", expected, int(outside[0]), kind=OutOfRange)
    array = array.astype(np.int64)
    return np.where(array < 0, array + num_trajectories, array)


def _array(numbers: NumbersOrMask) -> np.ndarray:
    if isinstance(numbers, torch.Tensor):
        numbers = numbers.tolist()
    try:
        if isinstance(numbers, Iterable) and not isinstance(numbers, str):
            # A ValueError if the numbers are lists of different lengths.
            return numbers if isinstance(numbers, np.ndarray) else np.array([*numbers])
    except ValueError:
        pass
    raise wrong_value(
        "numbers",
        "whole numbers or a mask",
        numbers,
        "Call episode(number) for a single trajectory.",
    )


def split_places(fractions: tuple[float, ...], num_places: int, seed: int) -> list[np.ndarray]:
    """Return disjoint random parts of K trajectories; the numbers of each are sorted."""
    is_number = all(
        isinstance(part, int | float) and not isinstance(part, bool) and part >= 0
        for part in fractions
    )
    if not fractions or not is_number or sum(fractions) > 1 + 1e-9:
        found = ", ".join(map(reprlib.repr, fractions)) or "none"
        raise wrong_value(
            "fractions",
            "fractions of at least 0 with a sum of at most 1",
            found,
            "Call split(0.9) or split(0.8, 0.1).",
        )
    order = permutation(num_places, whole_number("seed", seed, 0)).at(np.arange(num_places))
    # Round the sums, not the parts: the ten parts of 0.1 differ by at most one trajectory.
    #   0.25, 0.5 of 10      sums 0.25 0.75      ends 2 8      parts of 2, 6 and the other 2
    ends = np.rint(np.cumsum(fractions) * num_places).astype(np.int64).clip(max=num_places)
    has_rest = sum(fractions) < 1 - 1e-9
    return [np.sort(part) for part in np.split(order, ends if has_rest else ends[:-1])]


def first_places(count: int | float, by: str | None, table: Trajectories) -> np.ndarray:
    """Return the first trajectories of a table, sorted by a column."""
    num_best = _count(count, len(table))
    if by is None:
        return np.arange(num_best)
    column = by.removeprefix("-")
    values = table[column]
    if values.ndim > 1:
        raise WrongRows(
            f"take() sorts by one number per trajectory; {column} has the shape "
            f"{list(values.shape[1:])}.",
            argument="by",
            key=column,
            expected="one number per trajectory",
            found=list(values.shape[1:]),
            advice="Sort by one of them: episodes_at(np.argsort(-trajectories[...][:, 0])[:k]).",
        )
    return sorted_places(values, by)[:num_best]


def _count(count: int | float, num_places: int) -> int:
    if not isinstance(count, float):
        if (num_taken := whole_number("count", count, 0)) > num_places:
            raise wrong_value("count", f"{num_places} at most", count, kind=WrongSize)
        return num_taken
    if not 0 <= count <= 1:
        raise wrong_value(
            "count",
            "a fraction from 0.0 to 1.0",
            count,
            "Call take(10) or take(0.1).",
        )
    num_taken = round(count * num_places)
    if count and num_places and not num_taken:
        least = f"{1 / num_places:.2g}"
        raise WrongSize(
            f"take({count}) of {counted(num_places, 'trajectory')} is empty.",
            argument="count",
            expected=f"{least} or more",
            found=count,
            advice=f"Pass a fraction of at least {least}, or a number: take(1).",
        )
    return num_taken
