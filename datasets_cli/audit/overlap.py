"""Rows and trajectories that stand in two datasets, bit by bit, whatever their numbers are.

Each has a digest of its observations and actions. Digests are kept in files, in runs that are
sorted, and memory has those of all runs that are in one range at a time. What has the digest of
something else is compared with it, so that a copy is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal
from uuid import uuid4

import numpy as np

from datasets_cli.progress import Progress, expect_rows
from datasets_cli.schema.columns import Key, rows_per_block
from datasets_cli.schema.mapped_bytes import map_array
from datasets_cli.schema.trajectories import numbers_of, runs_within
from datasets_cli.store.arrays import DatasetArrays, joined_words

RUN = 1 << 17
"""Digests of a sorted run, and of a range about as many."""

RECORD_BYTES = 16
"""In a file: a digest, and the number of the row or trajectory that it is of."""

EXAMPLES = 5

Kind = Literal["rows", "trajectories"]

_ODD = np.uint64(0x9E3779B97F4A7C15)


class Digested:
    """A dataset with the digests of its rows and trajectories, by some columns."""

    def __init__(
        self, dataset: DatasetArrays, keys: frozenset[Key], folder: Path, progress: Progress
    ) -> None:
        self.dataset, self._keys, self._progress = dataset, sorted(keys), progress
        self.starts, self.step = dataset.starts, rows_per_block(dataset.row_bytes)
        self._reader = dataset.arrays_of(keys)
        totals = np.zeros(dataset.num_trajectories, np.uint64)
        pieces = (totals[at : at + RUN] for at in range(0, len(totals), RUN))
        expect_rows(progress, dataset.id, 0, len(dataset))
        self.runs: dict[Kind, _Runs] = {
            "rows": _Runs(self._digests(totals), len(dataset), folder / uuid4().hex),
            "trajectories": _Runs(pieces, len(totals), folder / uuid4().hex),
        }

    def words(self, rows: np.ndarray | slice) -> np.ndarray:
        """Return the bits of rows, by their numbers or of a run, ``[n, words]``."""
        is_run = isinstance(rows, slice)
        read = self._reader.run(rows.start, rows.stop) if is_run else self._reader.gather(rows)
        return joined_words([read[key] for key in self._keys])

    def _digests(self, totals: np.ndarray) -> Iterator[np.ndarray]:
        """Yield digests of all rows, a run at a time, and make those of their trajectories."""
        for first in range(0, len(self.dataset), RUN):
            digests = np.zeros(min(RUN, len(self.dataset) - first), np.uint64)
            for begin in range(0, len(digests), self.step):
                part = digests[begin : begin + self.step]
                start, stop = first + begin, first + begin + len(part)
                # Word by word: a row is mixed with what came before, so that order counts.
                for words in np.ascontiguousarray(self.words(slice(start, stop)).T):
                    part[:] = _mixed(part ^ words)
                positions = np.arange(start, stop) - self.starts[numbers_of(self.starts, start, stop)]
                marks = _mixed(part ^ (positions.astype(np.uint64) * _ODD))
                trajectories, begins = runs_within(self.starts, start, stop)
                totals[trajectories] += np.add.reduceat(marks, begins)
                self._progress.writing(stop)
            yield digests


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """Return 64 bits in which each depends on many of those of a number."""
    numbers = (numbers ^ (numbers >> np.uint64(32))) * _ODD
    return numbers ^ (numbers >> np.uint64(29))


class _Runs:
    """Digests in a file, in sorted runs, with the numbers of what they are of."""

    def __init__(self, runs: Iterable[np.ndarray], count: int, path: Path) -> None:
        with path.open("xb") as file:
            for first, digests in zip(range(0, count, RUN), runs, strict=True):
                order = np.argsort(digests, kind="stable")
                file.write(digests[order].data)
                file.write((order + first).data)
        self.count, words = count, map_array(path, np.uint64, (2 * count,))
        self._runs = [words[2 * at : 2 * (at + RUN)] for at in range(0, count, RUN)]

    def within(self, low: int, high: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the digests of a range, and their numbers, of each run."""
        for digests, numbers in (np.split(run, 2) for run in self._runs):
            begin = np.searchsorted(digests, np.uint64(low))
            end = np.searchsorted(digests, np.uint64(high), "right")
            yield digests[begin:end], numbers[begin:end].astype(np.int64)

    def firsts(self, low: int, high: int) -> tuple[np.ndarray, np.ndarray]:
        """Return each digest of a range once, with the lowest number that it has."""
        several = []
        for digests, numbers in self.within(low, high):
            kept, places = np.unique(digests, return_index=True)
            several.append((kept, numbers[places]))
        digests, numbers = (np.concatenate(each) for each in zip(*several, strict=True))
        digests, places = np.unique(digests, return_index=True)
        return digests, numbers[places]


def shared(
    one: Digested, other: Digested, kind: Kind, progress: Progress
) -> tuple[tuple[int, int], tuple[tuple[int, int], ...]]:
    """Return how many rows or trajectories of each dataset the other has, too, and the first."""
    count, first = 0, np.zeros((0, 2), np.int64)
    for pairs in _copies(one, other, kind, progress):
        count += len(pairs)
        first = np.concatenate((first, pairs))
        first = first[np.argsort(first[:, 0], kind="stable")[:EXAMPLES]]
    others = sum(map(len, _copies(other, one, kind, progress)))
    return (count, others), tuple((each, its_copy) for each, its_copy in first.tolist())


def _copies(
    one: Digested, other: Digested, kind: Kind, progress: Progress
) -> Iterator[np.ndarray]:
    """Yield rows or trajectories, and the first of another dataset that is equal, int64 ``[n, 2]``."""
    mine, others = (each.runs[kind] for each in (one, other))
    bits, done = (max(mine.count, others.count) // RUN).bit_length(), 0
    expect_rows(progress, one.dataset.id, 0, mine.count)
    for part in range(1 << bits):
        low, high = part << (64 - bits), ((part + 1) << (64 - bits)) - 1
        known, first = others.firsts(low, high)
        for digests, numbers in mine.within(low, high):
            places = np.searchsorted(known, digests)
            # A digest behind the last one known is not there.
            is_alike = (places < len(known)) & (np.append(known, 0)[places] == digests)
            pairs = np.stack((numbers[is_alike], first[places[is_alike]]), axis=1)
            yield pairs[_are_equal(one, other, kind, pairs)]
            done += len(numbers)
            progress.writing(done)


def _are_equal(one: Digested, other: Digested, kind: Kind, pairs: np.ndarray) -> np.ndarray:
    """Return which pairs of rows or trajectories have the same bits, bool ``[n]``."""
    firsts, ends = pairs.T, pairs.T + 1
    if kind == "trajectories":
        firsts, ends = (
            np.stack([each.starts[at] for each, at in zip((one, other), numbers, strict=True)])
            for numbers in (firsts, ends)
        )
    lengths = ends - firsts
    is_equal = lengths[0] == lengths[1]
    offsets = np.append(0, np.cumsum(lengths[0] * is_equal))
    step = min(one.step, other.step)
    for start in range(0, int(offsets[-1]), step):
        stop = min(start + step, int(offsets[-1]))
        which = numbers_of(offsets, start, stop)
        within = np.arange(start, stop) - offsets[which]
        words = one.words(firsts[0, which] + within), other.words(firsts[1, which] + within)
        is_equal[which[(words[0] != words[1]).any(1)]] = False
    return is_equal
