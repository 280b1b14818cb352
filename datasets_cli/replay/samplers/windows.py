"""Cutting slices of one length out of trajectories."""

from __future__ import annotations

import torch

from datasets_cli.errors import UsageError, by_reader
from datasets_cli.replay.trajectories.bounds import TrajectoryIndex, begins_of, steps_of
from datasets_cli.schema.mapping import sent

Overhang = bool | int
"""How many rows of a slice may be outside of its trajectory: a number, or True for all but one."""


class SliceWindows:
    """The slices of one length that trajectories have.

    trajectory of 5, slices of 3, span (1, 1)

    rows         0 1 2 3 4
    start -1   └───┘              the left side: row 0 and 1 are left of it
    start  0     └───┘
    ...
    start  3           └───┘      the right side: row 3 and 4 are left of it
    room = 5 - 3 + 1 + (1 + 1) = 5 starts
    """

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
        # A slice of a short trajectory is the whole of it, and overhangs less by what it lacks: at
        # least as many rows stay as of a full slice.
        self._rows = lengths.clamp(max=slice_len)
        lacking = slice_len - self._rows
        self._left, rights = ((side - lacking).clamp(min=0) for side in (left, right))
        # Starts of each trajectory. float64: a float32 cannot name every start of one above 2**24
        # rows.
        self._room = (lengths - self._rows + 1 + self._left + rights).double()
        self._steps = torch.arange(slice_len)
        self._is_last = self._steps == slice_len - 1
        self._last = self._is_last.unsqueeze(1)  # repeated for the slices that were drawn last
        self.are_full = not (left or right) and bool((lengths >= slice_len).all())

    def __len__(self) -> int:
        """Trajectories that slices can be drawn from."""
        return len(self._starts)

    def first_rows(self) -> torch.Tensor:
        """Return the first row int64 ``[K]`` of each trajectory that slices are drawn from."""
        order = self._trajectories.order
        return self._starts if order is None else order[self._starts]

    def begins(
        self, drawn: torch.Tensor, uniform: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return where a slice of each trajectory begins, and how many rows it has."""
        # drawn: trajectories int64 `[S]`.
        # uniform: where each slice is among those of its trajectory, float64 `[S]` in [0, 1).
        start = (uniform * self._room.index_select(0, drawn)).long()
        first = self._starts.index_select(0, drawn)
        if self.are_full:
            return self._trajectories.ahead(first, start), None
        # Starts count from the left side, where a slice begins before its trajectory: what is
        # outside of it is cut off at both ends.
        start -= self._left.index_select(0, drawn)
        stop = start + self._rows.index_select(0, drawn)
        stop = torch.minimum(stop, self._lengths.index_select(0, drawn))
        start.clamp_(min=0)
        return self._trajectories.ahead(first, start), stop - start

    def all_begins(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return each row int64 ``[N]`` that a slice can begin at, and how many rows it has."""
        # Without a left side, a trajectory's starts are its first steps. Not for rows that are
        # apart, which no row but the first tells where they continue.
        number, step = steps_of(self._room.long())
        first = self._trajectories.ahead(self._starts[number], step) % self._trajectories.capacity
        return first, (self._lengths[number] - step).clamp(max=len(self._steps))

    def rows(
        self, first: torch.Tensor, lengths: torch.Tensor | None, *, pad: bool
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Return the rows of slices that begin at ``first``, int64 ``[S]``."""
        # lengths: how many rows each has, int64 `[S]`; None where all are full.
        # rows int64 `[B]`; which of them end a slice, bool `[B, 1]`; and with `pad` which
        # of them are real, bool `[B]`, else None. The last real row ends its slice.
        if self._steps.device != first.device:  # once, where rows are drawn on a device
            self._steps = sent(self._steps, first.device)
            self._is_last = sent(self._is_last, first.device)
            self._last = self._is_last.unsqueeze(1)
        steps = self._steps
        if lengths is None:
            index = self._trajectories.rows(first, steps).view(-1)
            if len(self._last) != len(index):
                self._last = self._is_last.repeat(len(first)).unsqueeze(1)
            real = torch.ones_like(index, dtype=torch.bool) if pad else None
            return index, self._last.clone(), real
        final = (lengths - 1).unsqueeze(1)
        real = steps <= final
        # Padding repeats the last real row; without padding it is left out.
        index = self._trajectories.rows(first, torch.minimum(steps, final))
        last = steps == final
        if pad:
            return index.view(-1), last.view(-1, 1), real.view(-1)
        return index[real], last[real].unsqueeze(1), None


def slice_begins(last: torch.Tensor, real: torch.Tensor | None) -> torch.Tensor:
    """Return which rows begin a slice, bool ``[B, 1]``."""
    # last: which rows end a slice, bool `[B, 1]`.
    # real: which rows are not padding, bool `[B]`; all of them where None.
    if real is None:
        # begins_of in one call: the last row of a batch ends a slice, and makes row 0 begin one.
        return last.roll(1, 0)
    # Padding counts as ends, so that the row after it begins a slice; but padding begins none.
    return (begins_of(last.view(-1) | ~real) & real).unsqueeze(1)


def _overhang(span: tuple[Overhang, Overhang], slice_len: int) -> tuple[int, int]:
    """Return how many rows of a slice may be before and after its trajectory."""
    left, right = (slice_len - 1 if side is True else int(side) for side in span)
    if not (0 <= left < slice_len and 0 <= right < slice_len):
        raise UsageError(
            f"Of {slice_len} rows, 0 to {slice_len - 1} may be on either side of a trajectory, "
            f"not span={span}."
        )
    return left, right


def _too_short(lengths: torch.Tensor, slice_len: int) -> UsageError:
    """Return the error that no trajectory is as long as a slice."""
    longest = int(lengths.max()) if len(lengths) else 0
    return UsageError(
        f"No trajectory has {slice_len} rows; the longest has {longest}. Ask for shorter slices"
        f"{by_reader('.', ', or pass strict_length=False to take short trajectories whole.')}"
    )
