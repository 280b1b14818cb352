"""Seams, the last steps of a run in a ring, and trajectory numbers that no two runs share.

A run is one collector, or one process, that writes rows without a break. Trajectories of two runs
are never joined. Each collector of a process has its own numbers, later collectors continue after
the numbers of loaded rows, and a load leaves a seam after the last step that was loaded.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from threading import Lock

import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.trajectories.bounds import RowEntries
from datasets_cli.schema.columns import Key

COLLECTOR_NUMBER: Key = ("collector", "traj_ids")
BLOCK = 1024
"""The numbers that a collector reserves at a time."""


class Seams:
    """The last step of each run in a ring; it ends a trajectory.

    step   0 1 2 3 4 5
    run    1 1 1 2 2 2      a seam at 2: no trajectory has steps 2 and 3
    """

    def __init__(self) -> None:
        self._steps: set[int] = set()

    def __len__(self) -> int:
        return len(self._steps)

    def cut(self, steps: Iterable[int]) -> None:
        """End the trajectories at some steps."""
        self._steps.update(steps)

    def join(self, steps: Iterable[int]) -> None:
        """Remove the seams at some steps, which were overwritten or are continued."""
        self._steps.difference_update(steps)

    def before(self, stop: int) -> list[int]:
        """Return the seams among the first steps, in order."""
        return sorted(step for step in self._steps if step < stop)

    def clear(self) -> None:
        """Remove every seam."""
        self._steps.clear()


def moved_seams(steps: Iterable[int], shift: int, num_steps: int) -> list[int]:
    """Return the seams of a ring after its first ``shift`` steps were moved to the end.

    step    0 1 2 3 4      a seam at 1
    moved   2 3 4 0 1      by 2: the seam is at 4
    """
    return [(step - shift) % max(1, num_steps) for step in steps]


class _Counter:
    """The first number of this process that is in no block yet."""

    def __init__(self) -> None:
        self._lock, self._next = Lock(), 0

    def take_block(self) -> int:
        """Return the first number of a new block."""
        with self._lock:
            first, self._next = self._next, self._next + BLOCK
        return first

    def skip_to(self, number: int) -> None:
        """Start the next block at this number or later."""
        with self._lock:
            self._next = max(self._next, number)


_counter = _Counter()


class Numbering:
    """The trajectory numbers of one collector; other collectors have other numbers.

    counted   0 .. 1023    1024 .. 2047     by the collector
    number    0 .. 1023    2048 .. 3071     another collector has 1024 to 2047
    """

    def __init__(self, begin: int = 0) -> None:
        self.stop = begin
        """A number above all numbers returned so far."""
        _counter.skip_to(begin)
        self._firsts = torch.empty(0, dtype=torch.int64)  # the first number of each block

    def of(self, counted: torch.Tensor) -> torch.Tensor:
        """Return the numbers of trajectories that a collector counted from 0, int64 ``[...]``."""
        if not counted.numel():
            return counted
        # The count is the number of a block and a place in it. Reserve the blocks that are missing.
        blocks = counted // BLOCK
        missing = int(blocks.max()) + 1 - len(self._firsts)
        if missing > 0:
            added = torch.tensor([_counter.take_block() for _ in range(missing)])
            self._firsts = torch.cat([self._firsts, added])
        numbers = self._firsts[blocks] + counted % BLOCK
        self.stop = max(self.stop, int(numbers.max()) + 1)
        return numbers


def skip_numbers_of(rows: RowEntries) -> None:
    """Start every later block above the numbers of rows that another run collected."""
    if not rows.has(COLLECTOR_NUMBER):
        return
    with suppress(UsageError):  # several numbers per row, which are not a collector's
        numbers = rows.scalar_column(COLLECTOR_NUMBER)
        if numbers.numel() and not (numbers.is_floating_point() or numbers.is_complex()):
            _counter.skip_to(int(numbers.max()) + 1)
