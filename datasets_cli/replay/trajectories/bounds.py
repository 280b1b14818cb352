"""The first and last steps of trajectories, their lengths, and sums over them, from end flags.

step      0 1 2 3 4 5 6
end       . . x . . x .
begin     x . . x . . x       the step after an end, and the first one
first     0 0 0 3 3 3 6       of the trajectory of each step
last      2 2 2 5 5 5 6
number    0 0 0 1 1 1 2

Time is the last dimension. The other ones are sequences, each of which has its own trajectories.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import torch

from datasets_cli.errors import UnknownKey, UsageError, WrongRows
from datasets_cli.schema.bits import bits_of
from datasets_cli.schema.columns import (
    DONE,
    EPISODE,
    TERMINATED,
    TRUNCATED,
    Key,
    show_key,
    wrong_column,
)
from datasets_cli.schema.shapes import (
    Lengths,
    Mask,
    RowNumbers,
    StepFlags,
    Steps,
    TrajectoryNumbers,
)


class TrajectoryBounds(NamedTuple):
    """Trajectories of several sequences, sequence by sequence.

    ``sequence`` is the number of the sequence of each trajectory, int64 ``[K]``.
    """

    sequence: torch.Tensor
    first: Steps
    last: Steps
    lengths: Lengths


def bounds_of(ends: StepFlags) -> TrajectoryBounds:
    """Return the trajectories of sequences ``[S, T]``, up to the last end of each sequence."""
    sequence, last = ends.nonzero().unbind(1)  # sequence by sequence, in the order of time
    first = last.roll(1) + 1  # the step after the end of the trajectory before
    first[_opens(sequence)] = 0  # the first trajectory of a sequence begins with it
    return TrajectoryBounds(sequence, first, last, last - first + 1)


def ends_of_numbers(number: torch.Tensor, time: int = -1) -> StepFlags:
    """Return whether the trajectory number of each step differs from that of the next step."""
    if not (number.is_floating_point() or number.is_complex()):
        number = bits_of(number)  # the same comparison; some devices do not compare uint16
    return number != number.roll(-1, time)


def begins_of(ends: StepFlags) -> StepFlags:
    """Return the flags of steps that begin a trajectory, from the flags of steps that end one."""
    begins = ends.roll(1, -1)
    begins[..., :1] = True
    return begins


def ends_of(begins: StepFlags) -> StepFlags:
    """Return the flags of steps that end a trajectory, from the flags of steps that begin one."""
    ends = begins.roll(-1, -1)
    ends[..., -1:] = True
    return ends


def first_of(ends: StepFlags) -> torch.Tensor:
    """Return the first step of the trajectory of each step, int64 ``[*B, T]``."""
    time = torch.arange(ends.shape[-1], device=ends.device)
    return torch.where(begins_of(ends), time, 0).cummax(-1).values


def last_of(ends: StepFlags) -> torch.Tensor:
    """Return the last step of the trajectory of each step, int64 ``[*B, T]``."""
    size = ends.shape[-1]
    time = torch.arange(size, device=ends.device)
    # The next end of each step is a running minimum from the back.
    return torch.where(ends, time, size - 1).flip(-1).cummin(-1).values.flip(-1)


def numbers_of(begins: StepFlags) -> TrajectoryNumbers:
    """Return the number of the trajectory of each step, int64 ``[T]``, counted from 0."""
    return begins.cumsum(0) - 1


def steps_of(lengths: Lengths) -> tuple[TrajectoryNumbers, Steps]:
    """Return the trajectory and the step of each row, trajectory by trajectory.

    lengths 3, 2      trajectory 0 0 0 1 1      step 0 1 2 0 1
    """
    number = torch.repeat_interleave(lengths)
    begin = lengths.cumsum(0) - lengths  # the steps of all earlier trajectories
    return number, torch.arange(len(number)) - begin[number]


def sum_to_go(values: torch.Tensor, ends: StepFlags, gamma: float) -> torch.Tensor:
    """Return for each step the discounted sum of the values from it to its trajectory's end.

    The values ``[*B, T, ...]`` of whole numbers are summed as int64.
    """
    # Each pass doubles the reach of the sums: a million steps take twenty passes at most. No value,
    # not even NaN, passes an end.
    time = ends.ndim - 1
    total = (values if values.is_floating_point() else values.long()).movedim(time, 0).clone()
    # Of the dtype of the sums: 0.99 as float32 differs from 0.99 as float64.
    link = torch.full_like(ends, gamma, dtype=total.dtype).masked_fill_(ends, 0).movedim(time, 0)
    link = link.reshape(*link.shape, *[1] * (values.ndim - ends.ndim))
    reach = 1
    while reach < len(total) and bool(link.any()):
        linked, further = link[:-reach], total[reach:]
        total[:-reach] += torch.where(linked == 0, 0, linked * further)
        link = torch.cat((linked * link[reach:], torch.zeros_like(link[-reach:])))
        reach *= 2
    return total.movedim(0, time)


def sum_so_far(values: torch.Tensor, begins: StepFlags) -> torch.Tensor:
    """Return for each step the sum of the values from its trajectory's start to it."""
    time = begins.ndim - 1
    return sum_to_go(values.flip(time), begins.flip(time), 1.0).flip(time)


def _opens(sequence: torch.Tensor) -> Mask:
    """Return whether each trajectory is the first of its sequence."""
    opens = sequence != sequence.roll(1)
    opens[:1] = True  # with a single sequence no number differs
    return opens


@dataclass(frozen=True, eq=False)
class TrajectoryIndex:
    """Trajectories: step t of trajectory k is row ``(starts[k] + t * stride) % capacity``.

        a ring of 8 rows, cursor at 3      row   0 1 2 3 4 5 6 7
                                           step  2 3 4|0 1 2 0 1      the last continues at row 0

    If trajectories are fragmented, these are positions in ``order``, which contains the rows.
    """

    starts: RowNumbers
    lengths: Lengths
    stride: int
    capacity: int
    order: RowNumbers | None = None

    def ahead(self, first: RowNumbers, steps: Steps) -> RowNumbers:
        """Return the rows ``steps`` after ``first``, not wrapped around the ring."""
        return first + (steps if self.stride == 1 else steps * self.stride)

    def rows(self, first: RowNumbers, steps: Steps) -> RowNumbers:
        """Return the rows ``[B, T]`` at steps ``[T]`` or ``[B, T]`` after each row ``first``."""
        if self.stride != 1:
            steps = steps * self.stride
        rows = first.unsqueeze(1) + steps
        if self.order is not None:
            return self.order[rows]
        # Only a trajectory that continues at row 0 leaves the capacity.
        return rows.remainder_(self.capacity) if self.wraps else rows

    def every_row(self) -> tuple[TrajectoryNumbers, Steps, RowNumbers]:
        """Return the trajectory, the step and the row of every step, trajectory by trajectory."""
        number, step = steps_of(self.lengths)
        row = (self.starts[number] + step * self.stride) % self.capacity
        return number, step, row if self.order is None else self.order[row]

    @cached_property
    def wraps(self) -> bool:
        """Whether a trajectory continues at the first rows."""
        last = self.starts + (self.lengths - 1) * self.stride
        return bool((last >= self.capacity).any())


def index_from_ends(
    is_end: torch.Tensor, cursor: int, seams: Iterable[int] = ()
) -> TrajectoryIndex:
    """Return the trajectories between end flags ``[T, W]``: T steps of W environments.

    ``seams`` are steps that end the trajectories of all environments.
    """
    num_steps, width = is_end.shape
    if seams := list(seams):
        is_end = is_end.clone()
        is_end[seams] = True
    # Rotated so that the oldest step is the first: each trajectory is then a run of steps.
    ends = is_end.roll(-cursor, 0)
    ends[-1] = True
    environment, first, _, lengths = bounds_of(ends.T)
    first = (first + cursor) % num_steps  # rotated back
    return TrajectoryIndex(first * width + environment, lengths, width, num_steps * width)


NUMBER_KEYS: tuple[Key, ...] = (("collector", "traj_ids"), EPISODE)


@dataclass(frozen=True)
class TrajectoryKeys:
    """The columns that separate trajectories; without any, the storage's own table is used."""

    number: Key | None = None
    ends: tuple[Key, ...] = ()
    step: Key | None = None


TrajectorySource = TrajectoryKeys | TrajectoryIndex
"""The source of trajectories: columns of a storage, or an index of its rows."""

FROM_STORAGE = TrajectoryKeys()
"""The trajectories by the storage's own table or columns."""


class RowEntries(Protocol):
    """Rows whose entries are read by key: a storage or a rollout."""

    def has(self, key: Key) -> bool:
        """Return whether rows have an entry."""

    def entry(self, key: Key, rows: RowNumbers) -> torch.Tensor | None:
        """Return copies of an entry of some rows, or None if the entry does not exist."""

    def scalar_column(self, key: Key) -> torch.Tensor:
        """Return a column ``[T, W]``: T steps of W environments side by side."""


def default_number_key(rows: RowEntries) -> Key | None:
    """Return the default column of trajectory numbers, or None if the rows do not have one."""
    return next((key for key in NUMBER_KEYS if rows.has(key)), None)


def find_trajectories(
    rows: RowEntries, keys: TrajectoryKeys, cursor: int, seams: Iterable[int] = ()
) -> TrajectoryIndex:
    """Return the trajectories of rows; each ends at a change of its number, an end flag or a seam.

    step     0 1 2 3 4 5 6 7
    number   4 4 4 4 4 7 7 7
    done     . x . . . . . .      trajectories: 0 to 1, 2 to 4, 5 to 6, 7
    seam     . . . . . . x .
    """
    number = keys.number
    if number is not None and keys.ends and not rows.has(number):
        number = None
    elif number is None and not keys.ends:
        number = default_number_key(rows)
    if keys.step is not None:
        if number is None:
            raise UnknownKey(
                "Fragmented trajectories need a column of trajectory numbers, and the rows do not "
                f"have {' or '.join(map(show_key, NUMBER_KEYS))}.",
                argument="traj_key",
                expected=NUMBER_KEYS,
                advice="Pass the name of the column as traj_key.",
            )
        numbers, steps = (_whole(key, rows.scalar_column(key)) for key in (number, keys.step))
        return fragmented_index(numbers, steps, number)
    if number is not None:
        is_end = ends_of_numbers(rows.scalar_column(number), time=0)
        for flags in _flags_beside_numbers(rows, keys.ends):
            is_end |= flags
        return index_from_ends(is_end.cpu(), cursor, seams)
    ends = keys.ends or (DONE,)
    # If all are missing, reading the first one raises the error of a missing column.
    present = [key for key in ends if rows.has(key)] or ends[:1]
    flags = torch.stack([_flags(key, rows.scalar_column(key)) for key in present])
    return index_from_ends(flags.any(0).cpu(), cursor, seams)


def _flags_beside_numbers(rows: RowEntries, named: tuple[Key, ...]) -> Iterator[torch.Tensor]:
    """Yield the columns of end flags, bool ``[T, W]``, of rows that number their trajectories."""
    for key in named or ((DONE,) if rows.has(DONE) else (TERMINATED, TRUNCATED)):
        with suppress(UsageError):  # flags of several agents a row do not end its trajectory
            if rows.has(key):
                yield _flags(key, rows.scalar_column(key))


def fragmented_index(number: torch.Tensor, step: torch.Tensor, key: Key) -> TrajectoryIndex:
    """Return trajectories whose rows are not adjacent (pytorch/rl#4180).

    In a flat storage, environments that take turns write such rows. A missing step splits a
    trajectory into two.

        number   0 1 0 1 1 0        trajectories: rows 0 2, row 5 (step 2 is missing), rows 1 3 4
        step     0 0 1 1 2 3
    """
    numbers, steps = _sortable(number), _sortable(step)
    # Two stable sorts: by step, then by number. Rows with the same number stay ordered by step.
    order = steps.argsort(stable=True)
    order = order[numbers[order].argsort(stable=True)]
    ahead = steps[order].diff()
    is_same = numbers[order].diff() == 0
    if bool((twice := is_same & (ahead == 0)).any()):
        row = order[int(twice.nonzero()[0, 0])]
        raise WrongRows(
            f"{show_key(key)}={number[row].item()} has step {step[row].item()} twice.",
            key=key,
            row=int(row),
            found=step[row].item(),
            advice="Give every trajectory in the storage another number.",
        )
    is_end = torch.ones(1, len(order), dtype=torch.bool)
    is_end[0, :-1] = ~is_same | (ahead != 1)
    bounds = bounds_of(is_end)
    return TrajectoryIndex(bounds.first, bounds.lengths, 1, len(order), order)


def _whole(key: Key, column: torch.Tensor) -> torch.Tensor:
    """Return a column ``[T, W]`` of whole numbers as ``[T * W]``."""
    if column.dtype == torch.bool or column.is_floating_point() or column.is_complex():
        raise wrong_column(key, "whole numbers", column.dtype)
    return column.reshape(-1).cpu()


def _sortable(numbers: torch.Tensor) -> torch.Tensor:
    """Return whole numbers ``[N]`` as int64 of the same order and the same differences."""
    if numbers.dtype != torch.uint64:
        return numbers.long()
    # Moved down by 2**63: 0 becomes the lowest int64 and 2**64 - 1 the highest.
    return numbers.view(torch.int64) ^ torch.iinfo(torch.int64).min


def _flags(key: Key, column: torch.Tensor) -> torch.Tensor:
    """Return a column of one number per row as flags, True where it is not 0."""
    try:
        return column.bool()
    except NotImplementedError as error:
        raise wrong_column(key, torch.bool, column.dtype) from error
