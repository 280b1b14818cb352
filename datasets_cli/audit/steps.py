"""Steps of a publisher's file, and which of them are rows of a dataset.

step    0  1  2|  3  4  5|      | a step that is cut off, and no row
row     0  1      2  3
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from datasets_cli.audit.repaired import REPAIRS, SUFFIX, Runs
from datasets_cli.schema.columns import TERMINATED
from datasets_cli.schema.transitions import SHIFTED
from datasets_cli.store.arrays import DatasetArrays

NEW_ENDS = ("impossible-terminal", "unflagged-reset", "unflagged-jump")
"""Rules whose steps become ends that are cut off."""


class SharedSteps:
    """The steps of a file that are rows of both of two datasets, numbered from 0."""

    def __init__(self, num_steps: int, *dropped: np.ndarray) -> None:
        # dropped: the steps that are no rows of a dataset, int64, ascending; of each of the two.
        self.dropped, self._dropped_of_any = dropped, np.union1d(*dropped)
        self.num_steps, self.num_shared = num_steps, num_steps - len(self._dropped_of_any)

    def rows(self, place: int, numbers: np.ndarray) -> np.ndarray:
        """Return the rows of one of the datasets that shared steps are, int64."""
        return self._rows(place, steps_of(numbers, self._dropped_of_any))

    def _rows(self, place: int, steps: np.ndarray) -> np.ndarray:
        rows: np.ndarray = steps - np.searchsorted(self.dropped[place], steps)
        return rows

    @property
    def only_rows(self) -> tuple[Runs, Runs]:
        """The rows of each dataset that the other one does not have."""
        first, second = self.dropped
        only = np.setdiff1d(second, first), np.setdiff1d(first, second)
        return runs_of(self._rows(0, only[0])), runs_of(self._rows(1, only[1]))


def shared_steps(first: DatasetArrays, second: DatasetArrays) -> SharedSteps | None:
    """Return the steps that both have, where one is the other one repaired; None elsewhere."""
    if first.id == f"{second.id}{SUFFIX}":
        turned = shared_steps(second, first)
        return turned and SharedSteps(turned.num_steps, *turned.dropped[::-1])
    entries = second.manifest.metadata.get(REPAIRS)
    if second.id != f"{first.id}{SUFFIX}" or entries is None:
        return None
    dropped = repaired = np.zeros(0, np.int64)
    if first.manifest.successors.get("rule") == SHIFTED:
        ends = first.starts[1:] - 1
        terminated = first.arrays_of(frozenset({TERMINATED})).gather(ends)[TERMINATED]
        dropped = dropped_after(ends[~terminated.reshape(-1)])
        kept = np.setdiff1d(dropped, _changed(entries, ("false-end",)))
        repaired = np.union1d(kept, _changed(entries, NEW_ENDS))
    num_steps = len(first) + len(dropped)
    is_one_file = num_steps == len(second) + len(repaired)
    return SharedSteps(num_steps, dropped, repaired) if is_one_file else None


def _changed(entries: Iterable[Mapping[str, Any]], rules: tuple[str, ...]) -> np.ndarray:
    """Return the steps that repairs of some rules change, int64."""
    runs = (run for entry in entries if entry["rule"] in rules for run in entry["steps"])
    return np.array([step for first, n in runs for step in range(first, first + n)], np.int64)


def dropped_after(rows: np.ndarray) -> np.ndarray:
    """Return the steps that are no rows where one follows each of these rows, int64."""
    return rows + 1 + np.arange(len(rows))


def steps_of(rows: np.ndarray, dropped: np.ndarray) -> np.ndarray:
    """Return the steps that rows are, int64."""
    before = dropped - np.arange(len(dropped))  # the rows before each step that is none
    steps: np.ndarray = rows + np.searchsorted(before, rows, side="right")
    return steps


def runs_of(numbers: np.ndarray) -> Runs:
    """Return numbers that ascend as runs."""
    begins = np.flatnonzero(np.diff(numbers, prepend=-2) != 1)
    lengths = np.diff(begins, append=len(numbers))
    return tuple(zip(numbers[begins].tolist(), lengths.tolist(), strict=True))
