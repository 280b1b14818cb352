"""Slices of one length, cut from trajectories: where each begins, and which rows it has."""

from __future__ import annotations

from typing import NamedTuple

import torch

from datasets_cli.errors import UsageError, WrongSize, by_reader, wrong_value
from datasets_cli.replay.trajectories.bounds import TrajectoryIndex, begins_of, steps_of
from datasets_cli.schema.mapping import sent
from datasets_cli.schema.shapes import (
    FlagColumn,
    Lengths,
    Mask,
    RowNumbers,
    Steps,
    TrajectoryNumbers,
    Uniforms,
)

Overhang = bool | int
"""The number of rows of a slice that may lie outside its trajectory; True for all but one."""


class SliceBegins(NamedTuple):
    """The first row of each slice, and its number of rows; None if every slice is full."""

    first: RowNumbers
    lengths: Lengths | None


class SliceRows(NamedTuple):
    """The rows of slices, slice by slice.

    ``last`` is True for the last row of a slice, padding aside. ``real`` is False for padding; None
    if nothing was padded.
    """

    rows: RowNumbers
    last: FlagColumn
    real: Mask | None


class SliceWindows:
    """The slices of one length that trajectories have.

    trajectory of 5, slices of 3, span (1, 1)

    rows         0 1 2 3 4
    start -1   └───┘              the left side: rows 0 and 1 remain
    start  0     └───┘
    ...
    start  3           └───┘      the right side: rows 3 and 4 remain
    room = 5 - 3 + 1 + (1 + 1) = 5 starts
    """

    # Of each trajectory, in the order of `starts`:
    # starts: its first row.
    # lengths: its number of rows.
    # sizes: the rows of a full slice of it: the slice length, or fewer for a short trajectory.
    # left: how many steps before the trajectory a slice can start.
    # room: the number of starts. float64: float32 cannot count the starts above 2**24 rows.

    def __init__(
        self,
        trajectories: TrajectoryIndex,
        slice_len: int,
        strict_length: bool,
        span: tuple[Overhang, Overhang],
    ) -> None:
        starts, lengths = trajectories.starts, trajectories.lengths
        left, right = _overhang(span, slice_len)
        if strict_length:
            long_enough = lengths >= slice_len
            starts, lengths = starts[long_enough], lengths[long_enough]
        if not len(starts):
            raise _too_short(trajectories.lengths, slice_len)
        self._trajectories = trajectories
        self._starts = starts
        self._lengths = lengths
        self._sizes = lengths.clamp(max=slice_len)
        # A slice of a short trajectory overhangs less, by the rows that the trajectory lacks: it
        # keeps at least as many rows as a full slice would.
        lacking = slice_len - self._sizes
        self._left, rights = ((side - lacking).clamp(min=0) for side in (left, right))
        self._room = (lengths - self._sizes + 1 + self._left + rights).double()
        self._steps = torch.arange(slice_len)
        self._is_last = self._steps == slice_len - 1
        self._last = self._is_last.unsqueeze(1)  # cached: repeated for the size of the last batch
        self.are_full = not (left or right) and bool((lengths >= slice_len).all())

    def __len__(self) -> int:
        """Return the number of trajectories that slices are drawn from."""
        return len(self._starts)

    def first_rows(self) -> RowNumbers:
        """Return the first row of each trajectory that slices are drawn from."""
        order = self._trajectories.order
        return self._starts if order is None else order[self._starts]

    def begins(self, drawn: TrajectoryNumbers, uniform: Uniforms) -> SliceBegins:
        """Return where a slice of each drawn trajectory begins, by uniform random numbers."""
        # Which of the starts: from 0 to room - 1.
        start = (uniform * self._room.index_select(0, drawn)).long()
        first = self._starts.index_select(0, drawn)
        if self.are_full:
            return SliceBegins(self._trajectories.ahead(first, start), None)
        # Starts count from the left side, so that start 0 may lie before the trajectory.
        start -= self._left.index_select(0, drawn)
        size, length = (each.index_select(0, drawn) for each in (self._sizes, self._lengths))
        step, num_rows = clipped(start, size, length)
        return SliceBegins(self._trajectories.ahead(first, step), num_rows)

    def all_begins(self) -> tuple[RowNumbers, Lengths]:
        """Return each row at which a slice can begin, and the number of rows of that slice."""
        # Without a left side, the starts of a trajectory are its first steps. The rows of a
        # fragmented trajectory are not supported: only its first row leads to the next ones.
        number, step = steps_of(self._room.long())
        first = self._trajectories.ahead(self._starts[number], step) % self._trajectories.capacity
        return first, (self._lengths[number] - step).clamp(max=len(self._steps))

    def rows(self, begins: SliceBegins, *, pad: bool) -> SliceRows:
        """Return the rows of slices; with ``pad``, each slice has as many rows as a full one."""
        first, lengths = begins
        if self._steps.device != first.device:  # once, if rows are drawn on a device
            self._steps = sent(self._steps, first.device)
            self._is_last = sent(self._is_last, first.device)
            self._last = self._is_last.unsqueeze(1)
        if lengths is None:
            return self._full_rows(first, pad)
        return cut_rows(self._trajectories, first, lengths, self._steps, pad)

    def _full_rows(self, first: RowNumbers, pad: bool) -> SliceRows:
        index = self._trajectories.rows(first, self._steps).view(-1)
        if len(self._last) != len(index):
            self._last = self._is_last.repeat(len(first)).unsqueeze(1)
        real = torch.ones_like(index, dtype=torch.bool) if pad else None
        return SliceRows(index, self._last.clone(), real)


def clipped(start: Steps, size: Lengths, length: Lengths) -> tuple[Steps, Lengths]:
    """Return the first step and the number of rows of slices, without the rows outside.

    trajectory of length 5, slices of size 3

    start -1, stop 2    steps 0 1      first step 0, 2 rows
    start  3, stop 6    steps 3 4      first step 3, 2 rows
    """
    stop = torch.minimum(start + size, length)
    step = start.clamp(min=0)
    return step, stop - step


def cut_rows(
    trajectories: TrajectoryIndex, first: RowNumbers, lengths: Lengths, steps: Steps, pad: bool
) -> SliceRows:
    """Return the rows of slices of different lengths.

    slice of 2 rows from row 7, steps 0 1 2

             rows       last       real
    pad      7 8 8      . x .      x x .      padding repeats the last real row
    else     7 8        . x        None
    """
    final = (lengths - 1).unsqueeze(1)  # [S, 1]: the last step of each slice
    real = steps <= final  # [S, T]
    index = trajectories.rows(first, torch.minimum(steps, final))
    last = steps == final
    if pad:
        return SliceRows(index.view(-1), last.view(-1, 1), real.view(-1))
    return SliceRows(index[real], last[real].unsqueeze(1), None)


def begin_flags(last: FlagColumn, real: Mask | None) -> FlagColumn:
    """Return whether each row is the first of its slice; see ``SliceRows``."""
    if real is None:
        # begins_of in one call: the last row of a batch ends a slice, and makes row 0 begin one.
        return last.roll(1, 0)
    # Padding counts as ends, so that the row after it begins a slice; but padding begins none.
    return (begins_of(last.view(-1) | ~real) & real).unsqueeze(1)


def _overhang(span: tuple[Overhang, Overhang], slice_len: int) -> tuple[int, int]:
    """Return how many rows of a slice may lie before and after its trajectory."""
    left, right = (slice_len - 1 if side is True else int(side) for side in span)
    if not (0 <= left < slice_len and 0 <= right < slice_len):
        raise wrong_value(
            "span", f"0 to {slice_len - 1}, one less than slice_len", span, kind=WrongSize
        )
    return left, right


def _too_short(lengths: Lengths, slice_len: int) -> UsageError:
    longest = int(lengths.max()) if len(lengths) else 0
    return WrongSize(
        f"No trajectory has {slice_len} rows; the longest has {longest}.",
        argument="slice_len",
        expected=f"at most {longest}",
        found=slice_len,
        advice="Ask for shorter slices"
        + by_reader(".", ", or pass strict_length=False to take short trajectories whole."),
    )
