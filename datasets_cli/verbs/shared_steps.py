"""Steps of a publisher's file that are rows of a dataset, and of the same one repaired."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from datasets_cli.audit.repairs import NEW_ENDS
from datasets_cli.audit.rules.rule import NONE
from datasets_cli.catalogue.variants import REPAIRS, SUFFIX
from datasets_cli.core.system_errors import damaged
from datasets_cli.schema.columns import TERMINATED
from datasets_cli.schema.shapes import Runs, runs_of_rows
from datasets_cli.schema.transitions import SHIFTED, dropped_after, steps_of
from datasets_cli.store.arrays import DatasetArrays


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
        return runs_of_rows(self._rows(0, only[0])), runs_of_rows(self._rows(1, only[1]))


def shared_steps(first: DatasetArrays, second: DatasetArrays) -> SharedSteps | None:
    """Return the steps that both have, where one is the other one repaired; None elsewhere."""
    if first.id == f"{second.id}{SUFFIX}":
        turned = shared_steps(second, first)
        return turned and SharedSteps(turned.num_steps, *turned.dropped[::-1])
    entries = second.manifest.metadata.get(REPAIRS)
    if second.id != f"{first.id}{SUFFIX}" or entries is None:
        return None
    dropped, repaired, num_steps = NONE, NONE, len(first)
    if first.manifest.successors.get("rule") == SHIFTED:
        ends = first.starts[1:] - 1
        terminated = first.arrays_of(frozenset({TERMINATED})).gather(ends)[TERMINATED]
        dropped = dropped_after(ends[~terminated.reshape(-1)])
        with _damage(second):
            num_steps += len(dropped)
            still_dropped = np.setdiff1d(dropped, _changed(entries, ("false-end",), num_steps))
            repaired = np.union1d(still_dropped, _changed(entries, NEW_ENDS, num_steps))
    is_same = len(second) + len(repaired) == num_steps
    return SharedSteps(num_steps, dropped, repaired) if is_same else None


@contextmanager
def _damage(dataset: DatasetArrays) -> Iterator[None]:
    """Turn what is wrong with the repairs that a manifest lists into an error that says so."""
    try:
        yield
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        problem = f"{dataset.id}: the repairs in its manifest are not steps of the file ({error!r})"
        raise damaged(dataset.folder, problem) from error


def _changed(
    entries: Iterable[Mapping[str, Any]], rules: tuple[str, ...], num_steps: int
) -> np.ndarray:
    """Return the steps that repairs of some rules change, int64."""
    runs = [run for entry in entries if entry["rule"] in rules for run in entry["steps"]]
    first, counts = np.array(runs, np.int64).reshape(-1, 2).T
    ends = first + counts
    is_there = (first >= 0) & (counts > 0) & (counts <= num_steps) & (ends <= num_steps)
    if not is_there.all() or counts.sum() > len(rules) * num_steps:  # each once a rule
        raise ValueError(runs[:3])
    steps = (np.arange(begin, end) for begin, end in zip(first, ends, strict=True))
    return np.concatenate([NONE, *steps])
