"""Where trajectories begin and end, how long they are, and sums up to there: of a flag a step.

step      0 1 2 3 4 5 6
end       . . x . . x .
begin     x . . x . . x       the step after an end, and the first one
first     0 0 0 3 3 3 6       of the trajectory of each step
last      2 2 2 5 5 5 6
number    0 0 0 1 1 1 2

Time is the last dimension. The other ones are sequences, each of which has its own trajectories.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import torch

from datasets_cli.errors import UsageError
from datasets_cli.schema.bits import bits_of
from datasets_cli.schema.columns import DONE, EPISODE, Key, show_key

Cursor = int | torch.Tensor | range | None


class TrajectoryBounds(NamedTuple):
    """Trajectories of several sequences, one sequence after the other."""

    # sequence: the sequence of each trajectory, int64 `[K]`.
    # first: its first step, int64 `[K]`.
    # last: its last step, int64 `[K]`.
    # lengths: its number of steps, int64 `[K]`.

    sequence: torch.Tensor
    first: torch.Tensor
    last: torch.Tensor
    lengths: torch.Tensor


def bounds_of(ends: torch.Tensor) -> TrajectoryBounds:
    """Return the trajectories that end; steps after the last end of a sequence are in none."""
    # ends: whether a step ends its trajectory, bool `[S, T]`.
    sequence, last = ends.nonzero().unbind(1)
    first = last.roll(1) + 1  # the step after the last one of the trajectory before
    first[_opens(sequence)] = 0
    return TrajectoryBounds(sequence, first, last, last - first + 1)


def ring_bounds_of(ends: torch.Tensor) -> TrajectoryBounds:
    """Return the trajectories of rings, in which step 0 follows the last step.

    step     0 1 2 3 4 5
    end      . x . . x .       from 2 to 4, and from 5 to 1
    """
    sequence, first, last, _ = bounds_of(ends)
    opens = _opens(sequence)
    # Steps after the last end of a ring belong to its first trajectory, which begins there.
    final = torch.searchsorted(sequence, sequence[opens], right=True) - 1
    num_steps = ends.shape[1]
    first[opens] = (last[final] + 1) % num_steps
    return TrajectoryBounds(sequence, first, last, (last - first) % num_steps + 1)


def ends_of_numbers(number: torch.Tensor, time: int = -1) -> torch.Tensor:
    """Return the steps whose trajectory number is another one than that of the step after."""
    if not (number.is_floating_point() or number.is_complex()):
        number = bits_of(number)  # equal where they are; some devices do not compare uint16
    return number != number.roll(-1, time)


def begins_of(ends: torch.Tensor) -> torch.Tensor:
    """Return the steps that begin a trajectory, bool ``[*B, T]``, from those that end one."""
    begins = ends.roll(1, -1)
    begins[..., :1] = True
    return begins


def ends_of(begins: torch.Tensor) -> torch.Tensor:
    """Return the steps that end a trajectory, bool ``[*B, T]``, from those that begin one."""
    ends = begins.roll(-1, -1)
    ends[..., -1:] = True
    return ends


def first_of(ends: torch.Tensor) -> torch.Tensor:
    """Return the first step of the trajectory of each step, int64 ``[*B, T]``."""
    time = torch.arange(ends.shape[-1], device=ends.device)
    return torch.where(begins_of(ends), time, 0).cummax(-1).values


def last_of(ends: torch.Tensor) -> torch.Tensor:
    """Return the last step of the trajectory of each step, int64 ``[*B, T]``."""
    size = ends.shape[-1]
    time = torch.arange(size, device=ends.device)
    # The nearest end from a step on is a running minimum from the back.
    return torch.where(ends, time, size - 1).flip(-1).cummin(-1).values.flip(-1)


def numbers_of(begins: torch.Tensor) -> torch.Tensor:
    """Return the number of the trajectory of each step, int64 ``[T]``, counted from 0."""
    return begins.cumsum(0) - 1


def steps_of(lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the trajectory and the step in it, each int64 ``[N]``, of all steps in order."""
    # lengths: steps of each trajectory, int64 `[K]`.
    number = torch.repeat_interleave(lengths)
    begin = lengths.cumsum(0) - lengths  # steps of all trajectories before
    return number, torch.arange(len(number)) - begin[number]


def sum_to_go(values: torch.Tensor, ends: torch.Tensor, gamma: float) -> torch.Tensor:
    """Return for each step the discounted sum of its value and those after it, up to an end."""
    # Each pass doubles how far the sums reach, so that a million steps take twenty passes at most;
    # nothing, not even a NaN, gets past an end.
    # values: `[*B, T, ...]`; whole numbers are summed as int64.
    # ends: bool `[*B, T]`.
    time = ends.ndim - 1
    total = (values if values.is_floating_point() else values.long()).movedim(time, 0).clone()
    # Of the sums' own type from the start: 0.99 of float32 is another number than of float64.
    link = torch.full_like(ends, gamma, dtype=total.dtype).masked_fill_(ends, 0).movedim(time, 0)
    link = link.reshape(*link.shape, *[1] * (values.ndim - ends.ndim))
    reach = 1
    while reach < len(total) and bool(link.any()):
        linked, further = link[:-reach], total[reach:]
        total[:-reach] += torch.where(linked == 0, 0, linked * further)
        link = torch.cat((linked * link[reach:], torch.zeros_like(link[-reach:])))
        reach *= 2
    return total.movedim(0, time)


def sum_so_far(values: torch.Tensor, begins: torch.Tensor) -> torch.Tensor:
    """Return for each step the sum of its value and those before it, back to a beginning."""
    time = begins.ndim - 1
    return sum_to_go(values.flip(time), begins.flip(time), 1.0).flip(time)


def find_start_stop_traj(
    *,
    trajectory: torch.Tensor | None = None,
    end: torch.Tensor | None = None,
    at_capacity: bool,
    cursor: Cursor = None,
    device: torch.device | str | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return where the trajectories of a storage begin and end, and how long they are.

        row    0 1 2 3 4 5 6 7 8 9        full, written last at row 4, so that 5 is the oldest
        end    . . x . . . . x . .
        from 8 to 2 (5 rows, around the end), from 3 to 4 (cut by the cursor), from 5 to 7

    Args:
        trajectory: ids ``[T, *B]``, time first; a trajectory ends where the id changes.
        end: bool ``[T, *B]``, True on the last row of each; exclusive with ``trajectory``.
        at_capacity: whether the storage is a full ring, in which row 0 follows the last row. A
            dataset never is.
        cursor: in a full ring, the row written last: what followed it is gone, so it is an end.
        device: where to search; the results are on the device of the input.

    Returns:
        first rows and last rows int64 ``[K, 1 + len(B)]``, time in column 0 and the place in the
        batch in the others, and lengths int64 ``[K]``. A last row belongs to its trajectory.

    Raises:
        UsageError: none or both of the two are given, or they have no rows.
    """
    signal = end if trajectory is None else trajectory
    if signal is None or (end is not None and trajectory is not None):
        raise UsageError("Give either trajectory, the ids, or end, the flags of last rows.")
    if signal.ndim == 0 or signal.shape[0] == 0:
        raise UsageError(f"Trajectories need rows [T, *B], not a tensor {list(signal.shape)}.")
    ends = _last_rows(signal.to(device or signal.device), end is None, at_capacity, cursor)
    # Each place in the batch is a separate ring; without at_capacity the last row is an end, so
    # that nothing continues at row 0.
    rings = ends.reshape(len(ends), -1).t()
    ring, first, last, lengths = ring_bounds_of(rings)
    place = torch.stack((ring, *torch.unravel_index(ring, ends.shape[1:])), 1)[:, 1:]
    starts = torch.cat((first.unsqueeze(1), place), 1).to(signal.device)
    stops = torch.cat((last.unsqueeze(1), place), 1).to(signal.device)
    return starts, stops, lengths.to(signal.device)


def _last_rows(
    signal: torch.Tensor, is_ids: bool, at_capacity: bool, cursor: Cursor
) -> torch.Tensor:
    """Return bool ``[T, *B]``: which rows are the last of their trajectory; each column has one."""
    end = ends_of_numbers(signal, time=0) if is_ids else signal.clone()
    if not at_capacity:
        end[-1] = True
        return end
    if cursor is not None:  # of several rows that were written at once, the last one counts
        where = torch.as_tensor(list(cursor) if isinstance(cursor, range) else cursor)
        end[where.reshape(-1)[-1:] % len(end)] = True
    end[-1] |= ~end.any(0)  # one trajectory without an end fills the ring: cut it somewhere
    return end


def _opens(sequence: torch.Tensor) -> torch.Tensor:
    """Return which trajectories are the first of their sequence, bool ``[K]``."""
    opens = sequence != sequence.roll(1)
    opens[:1] = True  # also where there is one sequence, so that no number differs
    return opens


@dataclass(frozen=True, eq=False)
class TrajectoryIndex:
    """Trajectories: step t of trajectory k is row ``(starts[k] + t * stride) % capacity``.

        a ring of 8 rows, cursor at 3      row   0 1 2 3 4 5 6 7
                                           step  2 3 4|0 1 2 0 1      the last continues at row 0

    Where the rows of a trajectory are apart, these are places in ``order``, which has the rows.
    """

    starts: torch.Tensor
    lengths: torch.Tensor
    stride: int
    capacity: int
    order: torch.Tensor | None = None

    def ahead(self, first: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        """Return the rows int64 ``[B]`` that are ``steps`` int64 ``[B]`` ahead, not wrapped."""
        return first + (steps if self.stride == 1 else steps * self.stride)

    def rows(self, first: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        """Return the rows int64 ``[B, T]`` that are some steps ahead of others."""
        # first: rows int64 `[B]`, as `starts` and `ahead` give them.
        # steps: int64 `[T]`, or `[B, T]`.
        if self.stride != 1:
            steps = steps * self.stride
        rows = first.unsqueeze(1) + steps
        if self.order is not None:
            return self.order[rows]
        # Only a trajectory that continues at row 0 leaves the capacity.
        return rows.remainder_(self.capacity) if self.wraps else rows

    def every_row(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the trajectory, the step and the row int64 ``[N]`` of every step, in order."""
        number, step = steps_of(self.lengths)
        row = (self.starts[number] + step * self.stride) % self.capacity
        return number, step, row if self.order is None else self.order[row]

    @cached_property
    def wraps(self) -> bool:
        """Whether a trajectory continues at the first rows."""
        last = self.starts + (self.lengths - 1) * self.stride
        return bool((last >= self.capacity).any())


def index_from_ends(is_end: torch.Tensor, cursor: int) -> TrajectoryIndex:
    """Return the trajectories between ends."""
    # is_end: whether a step ends its trajectory, bool `[T, W]`, in the order of rows: W
    # environments side by side, T steps.
    num_steps, width = is_end.shape
    # Turned so that the oldest step is the first, each trajectory is a run of steps.
    ends = is_end.roll(-cursor, 0)
    ends[-1] = True
    environment, first, _, lengths = bounds_of(ends.T)
    first = (first + cursor) % num_steps  # turned back
    return TrajectoryIndex(first * width + environment, lengths, width, num_steps * width)


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
