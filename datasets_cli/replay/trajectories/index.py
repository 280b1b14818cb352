"""Trajectories of a storage, as a rule that gives the row of each step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from datasets_cli.replay.trajectories.bounds import bounds_of, steps_of


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
