"""Trajectories as runs of rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch


@dataclass(frozen=True, eq=False)
class TrajectoryIndex:
    """Trajectories: step t of run k is row ``(starts[k] + t * stride) % capacity``.

        a ring of 8 rows, cursor at 3      row   0 1 2 3 4 5 6 7
                                           step  2 3 4|0 1 2 0 1      the last run goes on at row 0

    Where the rows of a run lie apart, these are places in ``order``, which has the rows.

    Args:
        starts: first rows int64 ``[K]``.
        lengths: steps int64 ``[K]``.
        stride: rows from one step to the next; more than 1 where several environments write side by
            side.
        capacity: rows of the ring.
        order: rows int64 ``[N]``, run after run; None where they lie in order.
    """

    starts: torch.Tensor
    lengths: torch.Tensor
    stride: int
    capacity: int
    order: torch.Tensor | None = None

    def ahead(self, first: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        """Return the rows int64 ``[B]`` so many steps int64 ``[B]`` ahead of others, unwrapped."""
        return first + (steps if self.stride == 1 else steps * self.stride)

    def rows(self, first: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        """Return the rows ``steps`` int64 ``[T]`` behind first rows int64 ``[B]``: ``[B, T]``."""
        if self.stride != 1:
            steps = steps * self.stride
        rows = first.unsqueeze(1) + steps
        if self.order is not None:
            return self.order[rows]
        # Only a run that goes on at row 0 leaves the capacity.
        return rows.remainder_(self.capacity) if self.wraps else rows

    def every_row(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the run, the step and the number int64 ``[N]`` of every row, run after run."""
        run = torch.repeat_interleave(self.lengths)
        step = torch.arange(len(run)) - (self.lengths.cumsum(0) - self.lengths)[run]
        row = (self.starts[run] + step * self.stride) % self.capacity
        return run, step, row if self.order is None else self.order[row]

    @cached_property
    def wraps(self) -> bool:
        """Whether a run goes on at the first rows."""
        ends = self.starts + (self.lengths - 1) * self.stride
        return bool((ends >= self.capacity).any())


def index_from_ends(is_end: torch.Tensor, cursor: int) -> TrajectoryIndex:
    """Return the runs between ends.

    Args:
        is_end: whether a step ends its trajectory, bool ``[T, W]``, in the order of rows: W
            environments side by side, T steps.
        cursor: the step written next; what lies there is the oldest. Nothing is older than a run
            that begins there, and no run goes on over it.
    """
    num_steps, width = is_end.shape
    ends = torch.roll(is_end, -cursor, 0).clone()
    ends[-1] = True
    column, last = ends.T.nonzero().unbind(1)
    flat = column * num_steps + last
    lengths = torch.diff(flat, prepend=flat.new_full((1,), -1))
    first = (last - lengths + 1 + cursor) % num_steps
    return TrajectoryIndex(first * width + column, lengths, width, num_steps * width)
