"""Selections of trajectories for views, and their rows and texts."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from datasets_cli.schema.bits import checked_numbers
from datasets_cli.schema.columns import Key
from datasets_cli.schema.trajectories import lengths_of, trajectory_of
from datasets_cli.schema.tree import Tree
from datasets_cli.store.layouts.protocol import GatheredRows, LayoutRows
from datasets_cli.store.texts import TextRows, Values

PRESET = "view("  # the prefix of a step that is a preset with its arguments


@dataclass(frozen=True, eq=False)
class Selection:
    """Trajectories of a dataset in any order, each complete or a run of its rows.

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
        """Return the trajectories at positions of this selection."""
        # places: int64 `[n]`, counted from 0.
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
        # The remaining rows of each trajectory, numbered in this selection.
        first = np.maximum(offsets[:-1], start)
        lengths = np.minimum(offsets[1:], stop) - first
        kept = lengths > 0
        return self.runs(first[kept], lengths[kept], step or f"rows({start}, {stop})")

    def runs(self, first: np.ndarray, lengths: np.ndarray, step: str) -> Selection:
        """Return runs of these rows, each within one trajectory."""
        # first, lengths: of each run, int64 `[R]`.
        offsets = offsets_of(self.lengths)
        places = trajectory_of(offsets, first)
        # The first row of each run in the trajectory of the dataset.
        firsts = self.firsts[places] + first - offsets[places]
        return Selection(self.content, self.numbers[places], firsts, lengths, (*self.steps, step))

    def are_whole(self, offsets: np.ndarray) -> np.ndarray:
        """Return a mask of the complete trajectories, bool ``[K]``."""
        # offsets: of the dataset, int64 `[T + 1]`.
        whole: np.ndarray = self.lengths == lengths_of(offsets)[self.numbers]
        return whole

    def ends_early(self, offsets: np.ndarray) -> np.ndarray:
        """Return a mask of the trajectories without their last row, bool ``[K]``."""
        early: np.ndarray = self.firsts + self.lengths < lengths_of(offsets)[self.numbers]
        return early

    @property
    def distinct_numbers(self) -> np.ndarray:
        """The numbers of the trajectories; once where several runs of one follow each other."""
        stops = self.firsts + self.lengths
        runs_on = (np.diff(self.numbers) == 0) & (self.firsts[1:] >= stops[:-1])
        return np.delete(self.numbers, 1 + np.flatnonzero(runs_on))

    @property
    def digest(self) -> str:
        """The sha256 of the ordered rows and the presets, as 64 hexadecimal digits."""
        hashed = hashlib.sha256(self.content.encode("ascii"))
        for part in (self.numbers, self.firsts, self.lengths):
            hashed.update(part.astype("<i8").tobytes())
        for step in self.steps:
            if step.startswith(PRESET):  # papers cite a preset with its arguments
                hashed.update(step.encode())
        return hashed.hexdigest()

    def __reduce__(self) -> tuple[Any, ...]:
        # In the smallest dtype of the numbers, so that pickles are small.
        parts = (
            part.astype(np.min_scalar_type(int(part.max(initial=0))))
            for part in (self.numbers, self.firsts, self.lengths)
        )
        return _from_parts, (self.content, *parts, self.steps)


def whole_dataset(content: str, offsets: np.ndarray) -> Selection:
    """Return the selection of all trajectories of a dataset, in order."""
    # offsets: of its trajectories, int64 `[T + 1]`.
    numbers = np.arange(len(offsets) - 1)
    return Selection(content, numbers, np.zeros_like(numbers), lengths_of(offsets))


def offsets_of(lengths: np.ndarray) -> np.ndarray:
    """Return the offsets int64 ``[K + 1]`` of trajectories with lengths int64 ``[K]``."""
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


MAPPED_ROWS = 10_000_000
"""The largest view whose row numbers are in memory, 4 or 8 bytes each.

A larger view searches for the trajectory of a row, which takes as long as a gather, but only needs
memory for its trajectories."""


class SelectedRowMap:
    """Maps the rows of a selection to rows of the dataset."""

    # offsets: of the dataset's trajectories, int64 `[T + 1]`.

    def __init__(self, selection: Selection, offsets: np.ndarray) -> None:
        self.offsets = offsets_of(selection.lengths)
        self._num_rows = int(self.offsets[-1])
        # The first row of each run in the dataset.
        starts = offsets[selection.numbers] + selection.firsts
        # All rows of a trajectory have the same shift.
        self._shifts = starts - self.offsets[:-1]
        self._one_run = bool((self._shifts == self._shifts[:1]).all())
        self._is_mapped = not self._one_run and self._num_rows <= MAPPED_ROWS

    def __len__(self) -> int:
        return self._num_rows

    def rows(self, index: torch.Tensor) -> torch.Tensor:
        """Return the dataset's rows int64 ``[B]`` for rows int64 ``[B]``."""
        return torch.from_numpy(self.numbers(checked_numbers(index, self._num_rows)))

    def numbers(self, rows: np.ndarray) -> np.ndarray:
        """Return the dataset's rows int64 ``[B]`` for rows int64 ``[B]``, which must exist."""
        if self._is_mapped:
            return self._map.take(rows, 0, None, "clip").astype(np.int64)
        shifts = self._shifts[:1]
        # Run k begins at offsets[k]; its number is the number of runs that end at or before a row.
        if not self._one_run:
            shifts = self._shifts.take(self.offsets[1:].searchsorted(rows, side="right"))
        numbers: np.ndarray = rows + shifts
        return numbers

    @cached_property
    def _map(self) -> np.ndarray:
        rows = np.arange(self._num_rows)
        rows += np.repeat(self._shifts, np.diff(self.offsets))
        is_small = self._num_rows and int(rows.max()) < 2**31
        return rows.astype(np.int32) if is_small else rows


class SelectedRows:
    """The rows of a layout, numbered as in a selection; see ``LayoutRows``."""

    def __init__(self, rows: LayoutRows, row_map: SelectedRowMap) -> None:
        self._rows, self._map = rows, row_map

    def gather(self, index: torch.Tensor) -> Tree:
        return self._rows.gather(self._map.rows(index))

    def run(self, start: int, stop: int) -> Tree:
        return self.gather(torch.arange(start, stop))

    def read(self, index: torch.Tensor) -> GatheredRows:
        return self._rows.read(self._map.rows(index))

    def history(
        self, key: Key, index: torch.Tensor, age: torch.Tensor, length: int
    ) -> torch.Tensor:
        return self._rows.history(key, self._map.rows(index), age, length)


class SelectedTexts:
    """Columns of text, with rows numbered as in a selection; see ``TextRows``."""

    def __init__(self, texts: TextRows, row_map: SelectedRowMap) -> None:
        self._texts, self._map = texts, row_map
        self.columns, self.keys, self.shape = texts.columns, texts.keys, texts.shape

    def gather(self, index: np.ndarray) -> dict[Key, Values]:
        """Return the text of the rows ``index`` int64 ``[B]``, by column."""
        return self._texts.gather(self._map.rows(torch.from_numpy(index)).numpy())

    def column(self, key: Key) -> Values:
        """Return the text of all rows of one column."""
        rows = np.arange(int(self._map.offsets[-1]))
        return self.gather(rows)[key]
