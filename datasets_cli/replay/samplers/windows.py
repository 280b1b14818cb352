"""Cutting slices of one length out of trajectories."""

from __future__ import annotations

import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.trajectories.bounds import begins_of
from datasets_cli.replay.trajectories.index import TrajectoryIndex

Span = bool | int
"""How many rows of a slice may lie outside of its trajectory: a number, or True for all but one."""


class SliceWindows:
    """The slices of one length that trajectories have.

    Args:
        runs: the trajectories.
        slice_len: rows in a slice.
        strict_length: leave out shorter trajectories; otherwise they are slices of their own.
        span: rows that may lie before and behind a trajectory, and are left out.

    Raises:
        UsageError: no trajectory is long enough, or a span is longer than a slice.
    """

    def __init__(
        self, runs: TrajectoryIndex, slice_len: int, strict_length: bool, span: tuple[Span, Span]
    ) -> None:
        starts, lengths = runs.starts, runs.lengths
        left, right = overhang(span, slice_len)
        if strict_length:
            long_enough = lengths >= slice_len
            if not bool(long_enough.any()):
                raise too_short(lengths, slice_len)
            starts, lengths = starts[long_enough], lengths[long_enough]
        self._trajectories = runs
        self._starts = starts
        self._lengths = lengths
        self._left = left
        # float64: a float32 cannot name every start of a trajectory above 2**24 rows.
        self._room = (lengths - slice_len + 1 + left + right).clamp(min=1).double()
        self._steps = torch.arange(slice_len)
        self._is_last = self._steps == slice_len - 1
        self._last = self._is_last.unsqueeze(1)  # of as many slices as were drawn last
        self._all_full = not (left or right) and bool((lengths >= slice_len).all())

    def __len__(self) -> int:
        """Trajectories that slices can be drawn from."""
        return len(self._starts)

    def draw(
        self, drawn: torch.Tensor, generator: torch.Generator, *, pad: bool
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Return a random slice of each trajectory.

        Args:
            drawn: trajectories int64 ``[S]``.
            generator: draws the starts.
            pad: repeat the last row of a slice that is short.

        Returns:
            rows int64 ``[B]``, which of them end a slice bool ``[B, 1]``, and with ``pad`` which
            are real bool ``[B]``; the last of these ends its slice.
        """
        uniform = torch.rand(len(drawn), generator=generator, dtype=torch.float64)
        start = uniform.mul_(self._room.index_select(0, drawn)).long()
        first = self._starts.index_select(0, drawn)
        if self._all_full:
            index = self._trajectories.rows(
                self._trajectories.ahead(first, start), self._steps
            ).view(-1)
            if len(self._last) != len(index):
                self._last = self._is_last.repeat(len(drawn)).unsqueeze(1)
            last = self._last.clone()
            return index, last, torch.ones(len(index), dtype=torch.bool) if pad else None
        lengths = self._lengths.index_select(0, drawn)
        start -= self._left
        stop = torch.minimum(start + len(self._steps), lengths)
        start.clamp_(min=0)
        length = (stop - start).unsqueeze(1)
        real = self._steps < length
        steps = torch.minimum(self._steps, length - 1)
        index = self._trajectories.rows(self._trajectories.ahead(first, start), steps)
        last = self._steps == length - 1
        if pad:
            return index.view(-1), last.view(-1, 1), real.view(-1)
        return index[real], last[real].unsqueeze(1), None


def beginnings(last: torch.Tensor, real: torch.Tensor | None) -> torch.Tensor:
    """Return which rows begin a slice bool ``[B, 1]``; for arguments see what ``draw`` returns."""
    ends = last.view(-1)
    if real is None:
        return begins_of(ends).unsqueeze(1)
    # Padding counts as ends, so that the row after it begins a slice; but padding begins none.
    return (begins_of(ends | ~real) & real).unsqueeze(1)


def overhang(span: tuple[Span, Span], slice_len: int) -> tuple[int, int]:
    """Return how many rows of a slice may lie before and behind its trajectory.

    Raises:
        UsageError: a side is longer than a slice.
    """
    left, right = (slice_len - 1 if side is True else int(side) for side in span)
    if not (0 <= left < slice_len and 0 <= right < slice_len):
        raise UsageError(
            f"Of {slice_len} rows, 0 to {slice_len - 1} may lie on either side of a trajectory, "
            f"not span={span}."
        )
    return left, right


def too_short(lengths: torch.Tensor, slice_len: int) -> UsageError:
    """Return the error that no trajectory is as long as a slice."""
    longest = int(lengths.max()) if len(lengths) else 0
    return UsageError(
        f"No trajectory has {slice_len} rows; the longest has {longest}. Ask for shorter slices, "
        "or pass strict_length=False to take short trajectories whole."
    )
