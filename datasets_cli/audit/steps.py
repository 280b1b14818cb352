"""Steps of a publisher's file, and which of them are rows of a dataset.

step    0  1  2|  3  4  5|      | a step that is cut off, and no row
row     0  1      2  3
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from datasets_cli.audit.repaired import REPAIRS, SUFFIX, Runs
from datasets_cli.schema.columns import TERMINATED
from datasets_cli.schema.transitions import SHIFTED
from datasets_cli.store.arrays import DatasetArrays

NO_ENDS = frozenset({"false-end"})
NEW_ENDS = frozenset({"impossible-terminal", "unflagged-reset", "unflagged-jump"})
"""What repairs make of the steps that a rule finds: no end, or one that is cut off."""


@dataclass(frozen=True)
class FileSteps:
    """The steps of a file that are no rows of a dataset, int64, ascending."""

    dropped: np.ndarray

    @classmethod
    def after(cls, rows: np.ndarray) -> FileSteps:
        """Return the steps where one is dropped after each of these rows."""
        return cls(rows + 1 + np.arange(len(rows)))

    def of_rows(self, rows: np.ndarray) -> np.ndarray:
        """Return the steps that rows are, int64."""
        before = self.dropped - np.arange(len(self.dropped))  # the rows before each dropped step
        steps: np.ndarray = rows + np.searchsorted(before, rows, side="right")
        return steps

    def rows(self, steps: np.ndarray) -> np.ndarray:
        """Return the rows that steps are, int64."""
        rows: np.ndarray = steps - np.searchsorted(self.dropped, steps)
        return rows


@dataclass(frozen=True)
class SharedSteps:
    """The steps of a file that are rows of each of two datasets, numbered from 0."""

    num_steps: int  # of the file
    datasets: tuple[FileSteps, FileSteps]

    @cached_property
    def _shared(self) -> FileSteps:
        return FileSteps(np.union1d(*(each.dropped for each in self.datasets)))

    def __len__(self) -> int:
        return self.num_steps - len(self._shared.dropped)

    def rows(self, place: int, numbers: np.ndarray) -> np.ndarray:
        """Return the rows of one of the datasets that shared steps are, int64."""
        return self.datasets[place].rows(self._shared.of_rows(numbers))

    @property
    def only_rows(self) -> tuple[Runs, Runs]:
        """The rows of each dataset that the other one does not have."""
        first, second = self.datasets
        pairs = ((first, second), (second, first))
        only = (runs_of(a.rows(np.setdiff1d(b.dropped, a.dropped))) for a, b in pairs)
        return next(only), next(only)


def shared_steps(first: DatasetArrays, second: DatasetArrays) -> SharedSteps | None:
    """Return the steps that both have, where one is the other one repaired; None elsewhere."""
    if first.id == f"{second.id}{SUFFIX}":
        turned = shared_steps(second, first)
        return turned and SharedSteps(turned.num_steps, turned.datasets[::-1])
    manifest, other = first.manifest, second.manifest
    files, others = ([each["sha256"] for each in of.resources] for of in (manifest, other))
    if second.id != f"{first.id}{SUFFIX}" or not files or files != others:
        return None
    published = repaired = FileSteps(np.zeros(0, np.int64))
    if manifest.successors.get("rule") == SHIFTED:
        ends = first.starts[1:] - 1
        terminated = first.arrays_of(frozenset({TERMINATED})).gather(ends)[TERMINATED]
        published = FileSteps.after(ends[~terminated.reshape(-1)])
        entries = other.metadata[REPAIRS]
        kept = np.setdiff1d(published.dropped, _steps(entries, NO_ENDS))
        repaired = FileSteps(np.union1d(kept, _steps(entries, NEW_ENDS)))
    num_steps = len(first) + len(published.dropped)
    is_one_file = num_steps == len(second) + len(repaired.dropped)
    return SharedSteps(num_steps, (published, repaired)) if is_one_file else None


def _steps(entries: Iterable[Mapping[str, Any]], rules: frozenset[str]) -> np.ndarray:
    """Return the steps that repairs of some rules changed, int64."""
    runs = (run for entry in entries if entry["rule"] in rules for run in entry["steps"])
    return np.concatenate(
        [np.zeros(0, np.int64), *(np.arange(first, first + count) for first, count in runs)]
    )


def runs_of(numbers: np.ndarray) -> Runs:
    """Return numbers that ascend as runs."""
    begins = np.flatnonzero(np.diff(numbers, prepend=-2) != 1)
    lengths = np.diff(begins, append=len(numbers))
    return tuple(zip(numbers[begins].tolist(), lengths.tolist(), strict=True))
