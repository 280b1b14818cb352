"""Where trajectories begin, where they end and how long they are, from one flag a step.

step      0 1 2 3 4 5 6
end       . . x . . x .
begin     x . . x . . x       the step after an end, and the first one
first     0 0 0 3 3 3 6       of the trajectory of each step
last      2 2 2 5 5 5 6
number    0 0 0 1 1 1 2

Time is the last dimension. The other ones are sequences, each of which has trajectories of its own.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from datasets_cli.schema.bits import bits_of


class Bounds(NamedTuple):
    """Trajectories of several sequences, one sequence after the other."""

    # sequence: the sequence of each trajectory, int64 `[K]`.
    # first: its first step, int64 `[K]`.
    # last: its last step, int64 `[K]`.
    # lengths: its number of steps, int64 `[K]`.

    sequence: torch.Tensor
    first: torch.Tensor
    last: torch.Tensor
    lengths: torch.Tensor


def bounds_of(ends: torch.Tensor) -> Bounds:
    """Return the trajectories that end; steps after the last end of a sequence are in none."""
    # ends: whether a step ends its trajectory, bool `[S, T]`.
    sequence, last = ends.nonzero().unbind(1)
    first = last.roll(1) + 1  # the step after the last one of the trajectory before
    first[_opens(sequence)] = 0
    return Bounds(sequence, first, last, last - first + 1)


def ring_bounds_of(ends: torch.Tensor) -> Bounds:
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
    return Bounds(sequence, first, last, (last - first) % num_steps + 1)


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


def _opens(sequence: torch.Tensor) -> torch.Tensor:
    """Return which trajectories are the first of their sequence, bool ``[K]``."""
    opens = sequence != sequence.roll(1)
    opens[:1] = True  # also where there is one sequence, so that no number differs
    return opens
