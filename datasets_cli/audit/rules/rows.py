"""Rows of a dataset as rules see them: bounded runs, in order, that know their trajectories."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from datasets_cli.schema.columns import DONE, Key, rows_per_block
from datasets_cli.schema.trajectories import trajectory_of
from datasets_cli.store.arrays import Columns, DatasetArrays, plain_numbers


@dataclass(frozen=True)
class AuditedRows:
    """A run of transitions, and the trajectory that each is in.

    Args:
        first: the number of its first row.
        columns: arrays ``[n, *shape]`` by key, such as ``("next", "reward")``; copies.
        starts: where all trajectories start, int64 ``[K + 1]``; trajectory ``k`` is the rows
            ``starts[k]`` up to, and not including, ``starts[k + 1]``.
    """

    first: int
    columns: Columns
    starts: np.ndarray = field(repr=False)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @cached_property
    def numbers(self) -> np.ndarray:
        """The number of each row, int64 ``[n]``."""
        return np.arange(self.first, self.first + len(self))

    @cached_property
    def trajectory(self) -> np.ndarray:
        """The number of the trajectory of each row, int64 ``[n]``."""
        return trajectory_of(self.starts, self.numbers)

    @cached_property
    def is_first(self) -> np.ndarray:
        """Whether each row is the first one of its trajectory, bool ``[n]``."""
        is_first: np.ndarray = self.starts[self.trajectory] == self.numbers
        return is_first

    @cached_property
    def is_last(self) -> np.ndarray:
        """Whether each row is the last one of its trajectory, bool ``[n]``."""
        is_last: np.ndarray = self.starts[self.trajectory + 1] == self.numbers + 1
        return is_last

    def flag(self, key: Key) -> np.ndarray:
        """Return a column of flags, such as ``("next", "terminated")``, bool ``[n]``."""
        return self.columns[key].reshape(len(self)).astype(np.bool_)

    def values(self, key: Key, numbers: tuple[int, ...] = ()) -> np.ndarray:
        """Return a column, or some numbers of it, as float64 ``[n, numbers of a row]``."""
        values = self.columns[key].reshape(len(self), -1)
        return values[:, numbers or slice(None)].astype(np.float64)


def audited_rows(dataset: DatasetArrays, keys: frozenset[Key]) -> Iterator[AuditedRows]:
    """Yield all rows of a dataset, of some columns, in bounded runs."""
    starts, rows = dataset.starts, dataset.arrays_of(keys)
    columns = [each for each in dataset.manifest.columns if each.key in keys]
    step = rows_per_block(sum(each.row_bytes for each in columns))
    for start in range(0, len(dataset), step):
        run = rows.run(start, min(start + step, len(dataset)))
        yield AuditedRows(start, {key: _plain(each) for key, each in run.items()}, starts)
        dataset.forget_pages()  # else all that was read counts as this process's memory


def _plain(rows: np.ndarray) -> np.ndarray:
    numbers = rows if rows.dtype == object else plain_numbers(rows)
    return rows if numbers is None else numbers


FAR = 1 << 62
"""Where a trajectory ends of which the end was not seen yet."""


def streamed_rows(
    runs: Iterable[Mapping[Key, np.ndarray]], keys: frozenset[Key]
) -> Iterator[AuditedRows]:
    """Yield rows that come as a stream, of some columns."""
    starts, first = np.zeros(1, np.int64), 0
    for run in runs:
        done = run[DONE].reshape(-1)
        starts = np.concatenate((starts, first + 1 + np.flatnonzero(done)))
        known = starts if done[-1] else np.append(starts, FAR)
        yield AuditedRows(first, {key: _plain(run[key]) for key in keys}, known)
        first += len(done)
