"""Which trajectories of a dataset a view has, as numbers: nothing of the dataset is copied."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from datasets_cli.schema.trajectories import lengths_of


@dataclass(frozen=True, eq=False)
class Selection:
    """Some trajectories of a dataset in an order of their own, each whole or a run of its rows.

    dataset     0 0 0 0 1 1 2 2 2
    selection       0 0     2 2 2      numbers [0, 2], firsts [2, 0], lengths [2, 3]
    """

    content: str
    numbers: np.ndarray
    firsts: np.ndarray
    lengths: np.ndarray
    steps: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.numbers)

    def at(self, places: np.ndarray, step: str) -> Selection:
        """Return some of these trajectories."""
        # places: in this selection, int64 `[n]`, from 0 on.
        return Selection(
            self.content,
            self.numbers[places],
            self.firsts[places],
            self.lengths[places],
            (*self.steps, step),
        )

    def rows(self, start: int, stop: int, step: str = "") -> Selection:
        """Return the rows ``start`` to ``stop - 1``; both may be inside a trajectory."""
        offsets = offsets_of(self.lengths)
        # What each trajectory keeps of its rows, counted in all of them.
        first = np.maximum(offsets[:-1], start)
        lengths = np.minimum(offsets[1:], stop) - first
        kept = np.flatnonzero(lengths > 0)
        return Selection(
            self.content,
            self.numbers[kept],
            (self.firsts + first - offsets[:-1])[kept],
            lengths[kept],
            (*self.steps, step or f"rows({start}, {stop})"),
        )

    def are_whole(self, offsets: np.ndarray) -> np.ndarray:
        """Return which of the trajectories are whole, bool ``[K]``."""
        # offsets: of the dataset, int64 `[T + 1]`.
        whole: np.ndarray = self.lengths == lengths_of(offsets)[self.numbers]
        return whole

    def ends_early(self, offsets: np.ndarray) -> np.ndarray:
        """Return which trajectories do not have the last row of the dataset's, bool ``[K]``."""
        early: np.ndarray = self.firsts + self.lengths < lengths_of(offsets)[self.numbers]
        return early

    @property
    def digest(self) -> str:
        """The sha256 of which rows there are in which order, as 64 hexadecimal digits."""
        found = hashlib.sha256(self.content.encode("ascii"))
        for part in (self.numbers, self.firsts, self.lengths):
            found.update(part.astype("<i8").tobytes())
        return found.hexdigest()

    def __reduce__(self) -> tuple[Any, ...]:
        # In the smallest type that has them, so that pickles are small.
        parts = (
            part.astype(np.min_scalar_type(int(part.max(initial=0))))
            for part in (self.numbers, self.firsts, self.lengths)
        )
        return _from_parts, (self.content, *parts, self.steps)


def whole_dataset(content: str, offsets: np.ndarray) -> Selection:
    """Return the selection of all trajectories of a dataset, in their order."""
    # offsets: of its trajectories, int64 `[T + 1]`.
    numbers = np.arange(len(offsets) - 1)
    return Selection(content, numbers, np.zeros_like(numbers), lengths_of(offsets))


def offsets_of(lengths: np.ndarray) -> np.ndarray:
    """Return the offsets int64 ``[K + 1]`` of trajectories of some lengths int64 ``[K]``."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)))


def _from_parts(
    content: str,
    numbers: np.ndarray,
    firsts: np.ndarray,
    lengths: np.ndarray,
    steps: tuple[str, ...],
) -> Selection:
    numbers, firsts, lengths = (part.astype(np.int64) for part in (numbers, firsts, lengths))
    return Selection(content, numbers, firsts, lengths, steps)
