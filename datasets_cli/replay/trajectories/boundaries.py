"""Where trajectories end: the columns that tell it, and the trajectories that follow from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.trajectories.bounds import bounds_of, ends_of_numbers
from datasets_cli.replay.trajectories.index import TrajectoryIndex, index_from_ends
from datasets_cli.schema.columns import DONE, EPISODE, Key, show_key

NUMBER_KEYS: tuple[Key, ...] = (("collector", "traj_ids"), EPISODE)


@dataclass(frozen=True)
class TrajectoryKeys:
    """The columns that tell trajectories apart; with none of them, what a storage knows."""

    number: Key | None = None
    ends: tuple[Key, ...] = ()
    step: Key | None = None


TrajectorySource = TrajectoryKeys | TrajectoryIndex
"""Where trajectories are: the columns of a storage that tell, or what is known already."""

FROM_STORAGE = TrajectoryKeys()
"""What the storage knows of them."""


class Columns(Protocol):
    """Rows that have columns."""

    def has(self, key: Key) -> bool:
        """Return whether there is such a column."""


class ScalarColumns(Columns, Protocol):
    """Rows that have columns of one number each."""

    def scalar_column(self, key: Key) -> torch.Tensor:
        """Return a column ``[T, W]``: T steps of W environments side by side."""


def found_number(rows: Columns) -> Key | None:
    """Return the column of numbers that tells trajectories apart where none was named."""
    return next((key for key in NUMBER_KEYS if rows.has(key)), None)


def find_trajectories(rows: ScalarColumns, keys: TrajectoryKeys, cursor: int) -> TrajectoryIndex:
    """Return the trajectories of rows."""
    number = keys.number
    if number is not None and keys.ends and not rows.has(number):
        number = None
    elif number is None and not keys.ends:
        number = found_number(rows)
    if keys.step is not None:
        if number is None:
            raise UsageError(
                "Rows of a trajectory that are apart are found by its number, and there is no "
                "column of numbers. Name the column with traj_key."
            )
        numbers, steps = (_whole(key, rows.scalar_column(key)) for key in (number, keys.step))
        return fragmented_index(numbers, steps, number)
    if number is not None:
        is_end = ends_of_numbers(rows.scalar_column(number), time=0)
        return index_from_ends(is_end.cpu(), cursor)
    ends = keys.ends or (DONE,)
    # Without any of them the first is asked for, and its rows say that there is none.
    known = [key for key in ends if rows.has(key)] or ends[:1]
    flags = torch.stack([_flags(key, rows.scalar_column(key)) for key in known])
    return index_from_ends(flags.any(0).cpu(), cursor)


def fragmented_index(number: torch.Tensor, step: torch.Tensor, key: Key) -> TrajectoryIndex:
    """Return the trajectories of rows that are apart (pytorch/rl#4180).

    Such are those of environments that take turns in a flat storage. A missing step parts a
    trajectory in two.

        number   0 1 0 1 1 0        trajectories: rows 0 2, row 5 (step 2 is missing), rows 1 3 4
        step     0 0 1 1 2 3
    """
    numbers, steps = _sortable(number), _sortable(step)
    # Stable sorts, the second one by the number: rows by number, and of one number by step.
    order = steps.argsort(stable=True)
    order = order[numbers[order].argsort(stable=True)]
    ahead = steps[order].diff()
    is_same = numbers[order].diff() == 0
    if bool((twice := is_same & (ahead == 0)).any()):
        row = order[int(twice.nonzero()[0, 0])]
        raise UsageError(
            f"{show_key(key)}={number[row].item()} has step {step[row].item()} twice. Trajectories "
            "whose rows are apart need their own numbers, over all that is stored."
        )
    is_end = torch.ones(1, len(order), dtype=torch.bool)
    is_end[0, :-1] = ~is_same | (ahead != 1)
    bounds = bounds_of(is_end)
    return TrajectoryIndex(bounds.first, bounds.lengths, 1, len(order), order)


def _whole(key: Key, column: torch.Tensor) -> torch.Tensor:
    """Return a column ``[T, W]`` of whole numbers as ``[T * W]``."""
    if column.dtype == torch.bool or column.is_floating_point() or column.is_complex():
        raise UsageError(
            f"{show_key(key)} is {column.dtype}; rows that are apart are found by whole numbers."
        )
    return column.reshape(-1).cpu()


def _sortable(numbers: torch.Tensor) -> torch.Tensor:
    """Return whole numbers ``[N]`` as int64 of the same order and the same differences."""
    if numbers.dtype != torch.uint64:
        return numbers.long()
    # Moved down by 2**63: 0 becomes the lowest int64 and 2**64 - 1 the highest.
    return numbers.view(torch.int64) ^ torch.iinfo(torch.int64).min


def _flags(key: Key, column: torch.Tensor) -> torch.Tensor:
    """Return a column of one number a row as flags, True where it is not 0."""
    try:
        return column.bool()
    except NotImplementedError as error:
        raise UsageError(f"{show_key(key)} is {column.dtype}, not a flag.") from error
