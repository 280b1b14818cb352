"""Overlap: the rows and trajectories that two installed datasets share.

Each row has a digest of its observation and action. Digests are stored in sorted runs on disk, and
one range of all runs is in memory at a time. Rows with equal digests are compared, so every
reported copy is exact.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from uuid import uuid4

import numpy as np

from datasets_cli.catalogue.names import InstalledIds, select_installed
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.options import takes_fields
from datasets_cli.core.progress import Progress, ProgressOptions, Rows
from datasets_cli.core.progress_display import displayed
from datasets_cli.errors import wrong_value
from datasets_cli.install.find import open_installed
from datasets_cli.schema.columns import Key, rows_per_block
from datasets_cli.schema.mapped_bytes import map_array
from datasets_cli.schema.trajectories import numbers_of
from datasets_cli.sources.disk import check_free_space, path_errors
from datasets_cli.store.arrays import ArrayRows, DatasetArrays
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.verbs.row_digests import HASHED, add_to_trajectories, joined_words, row_digests

RUN = 1 << 17
"""Digests of a sorted run, and of a range about as many."""

EXAMPLES = 5
Known = dict[tuple[str, tuple[Key, ...]], "tuple[_Digests, _Digests]"]


@dataclass(frozen=True)
class InCommon(JsonForm):
    """The number of transitions or trajectories that two datasets share.

    Args:
        totals: the total number in each dataset.
        counts: the number in each dataset that the other dataset contains.
        examples: the first shared ones: the number in the first dataset, and in the second.
    """

    totals: tuple[int, int]
    counts: tuple[int, int]
    examples: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class DatasetOverlap(JsonForm):
    """The bitwise overlap of two installed datasets.

    Args:
        ids: the two ids.
        columns: the compared columns: observations and actions with the same name, dtype and
            shape in both.
        left_out: the other observations and actions.
        transitions: the shared transitions, at any position; None without observations to compare.
        trajectories: the shared trajectories, whose transitions are equal and in the same order.
    """

    ids: tuple[str, str]
    columns: tuple[Key, ...]
    left_out: tuple[Key, ...]
    transitions: InCommon | None
    trajectories: InCommon | None


@dataclass(frozen=True)
class OverlapCall(ProgressOptions, InstalledIds):
    """What ``find_overlap`` takes."""


@takes_fields(OverlapCall)
def find_overlap(call: OverlapCall) -> list[DatasetOverlap]:
    """Return the overlap of each pair of datasets, in any layouts.

    Memory does not grow with the rows; the cache root needs 16 bytes per row for the call.

    Raises:
        UsageError: fewer than two datasets are selected.
        DatasetNotInstalled, UnknownDataset: a dataset is not installed.
        DamagedDataset: a dataset differs from its manifest.
        DiskFull: the root has no room for the digests.
    """
    config = call.chosen_config()
    opened = (open_installed(id, config) for id in select_installed(call.ids, config))
    datasets = {dataset.id: dataset for dataset in opened}
    if len(datasets) < 2:
        raise wrong_value(
            "ids",
            "two or more datasets",
            [*datasets],
            "Duplicates within one dataset: rlds audit ID --rule duplicate-trajectory",
        )
    folder = CacheRoot(config.root).new_staging("overlap")
    try:
        with displayed(call.progress, "transitions compared") as progress, path_errors(folder):
            folder.mkdir(parents=True)
            known: Known = {}
            pairs = combinations(datasets.values(), 2)
            return [_overlap(pair, known, folder, progress) for pair in pairs]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _overlap(
    pair: tuple[DatasetArrays, DatasetArrays], known: Known, folder: Path, progress: Progress
) -> DatasetOverlap:
    columns = [{x for x in each.manifest.all_columns if x.key[0] in HASHED} for each in pair]
    keys = tuple(sorted(each.key for each in columns[0] & columns[1]))
    rows = trajectories = None
    if any(key[0] == "observation" for key in keys):
        for each in pair:
            if (each.id, keys) not in known:
                known[each.id, keys] = _digested(each, keys, folder, progress)
        one, other = (known[each.id, keys] for each in pair)
        rows, trajectories = (_in_common(one[n], other[n], progress) for n in range(2))
    left_out = tuple(sorted({each.key for each in columns[0] ^ columns[1]}))
    return DatasetOverlap((pair[0].id, pair[1].id), keys, left_out, rows, trajectories)


def _digested(
    dataset: DatasetArrays, keys: tuple[Key, ...], folder: Path, progress: Progress
) -> tuple[_Digests, _Digests]:
    """Return the digests of the rows of a dataset, and of its trajectories, by some columns."""
    check_free_space(folder, 16 * (len(dataset) + dataset.num_trajectories), dataset.id)
    progress(Rows(dataset.id, 0, len(dataset)))
    reader, starts = dataset.arrays_of(frozenset(keys)), dataset.starts
    totals = np.zeros(len(starts) - 1, np.uint64)
    step = min(RUN, rows_per_block(dataset.row_bytes))

    def of_rows(start: int, stop: int) -> np.ndarray:
        digests = row_digests(reader.run(start, stop))
        add_to_trajectories(totals, digests, starts, start)
        progress(Rows(dataset.id, stop, len(dataset)))
        return digests

    read = dataset.id, reader, step, folder
    rows = _Digests(*read, of_rows, len(dataset))
    return rows, _Digests(*read, lambda start, stop: totals[start:stop], len(totals), starts)


class _Digests:
    """Digests of rows or trajectories, in a file of sorted runs, each with its numbers."""

    def __init__(
        self,
        id: str,
        reader: ArrayRows,
        step: int,
        folder: Path,
        digests_of: Callable[[int, int], np.ndarray],
        count: int,
        starts: np.ndarray | None = None,
    ) -> None:
        self.id, self.reader, self.step, self.count, self._starts = id, reader, step, count, starts
        path, run = folder / uuid4().hex, RUN // step * step
        with path.open("xb") as file:
            for first in range(0, count, run):
                last = min(first + run, count)
                parts = [digests_of(n, min(n + step, last)) for n in range(first, last, step)]
                digests = np.concatenate(parts)
                order = np.argsort(digests, kind="stable")
                file.write(digests[order].data)
                file.write((order + first).data)
        words = map_array(path, "u8", (2 * count,))
        self._runs = [np.split(words[2 * n : 2 * (n + run)], 2) for n in range(0, count, run)]

    def extents(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return where rows or trajectories begin and end, int64 ``[n]`` each."""
        starts = self._starts
        return (numbers, numbers + 1) if starts is None else (starts[numbers], starts[numbers + 1])

    def within(self, low: int, high: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the digests of a range, and their numbers, of each run."""
        for digests, numbers in self._runs:
            begin = np.searchsorted(digests, np.uint64(low))
            end = np.searchsorted(digests, np.uint64(high), "right")
            yield digests[begin:end], numbers[begin:end].astype(np.int64)

    def firsts(self, low: int, high: int) -> tuple[np.ndarray, np.ndarray]:
        """Return each digest of a range once, with the lowest number that it has."""
        several = []
        for digests, numbers in self.within(low, high):
            each, places = np.unique(digests, return_index=True)
            several.append((each, numbers[places]))
        digests, numbers = (np.concatenate(each) for each in zip(*several, strict=True))
        digests, places = np.unique(digests, return_index=True)
        return digests, numbers[places]


def _in_common(mine: _Digests, others: _Digests, progress: Progress) -> InCommon:
    """Return the number of rows or trajectories of each dataset that the other contains."""
    count, first = 0, np.zeros((0, 2), np.int64)
    for pairs in _copies(mine, others, progress):
        count += len(pairs)
        first = np.concatenate((first, pairs))
        first = first[np.argsort(first[:, 0])[:EXAMPLES]]
    again = sum(map(len, _copies(others, mine, progress)))
    examples = tuple((number, its_copy) for number, its_copy in first.tolist())
    return InCommon((mine.count, others.count), (count, again), examples)


def _copies(mine: _Digests, others: _Digests, progress: Progress) -> Iterator[np.ndarray]:
    """Yield pairs of equal rows, the first match of each, int64 ``[n, 2]``."""
    bits, done = (max(mine.count, others.count) // RUN).bit_length(), 0
    progress(Rows(mine.id, 0, mine.count))
    for part in range(1 << bits):
        low, high = part << (64 - bits), ((part + 1) << (64 - bits)) - 1
        known, first = others.firsts(low, high)
        for digests, numbers in mine.within(low, high):
            places = np.searchsorted(known, digests)
            is_known = places < len(known)
            is_known[is_known] = known[places[is_known]] == digests[is_known]
            pairs = np.stack((numbers[is_known], first[places[is_known]]), axis=1)
            yield pairs[_are_equal(mine, others, pairs)]
            done += len(numbers)
            progress(Rows(mine.id, done, mine.count))


def _are_equal(mine: _Digests, others: _Digests, pairs: np.ndarray) -> np.ndarray:
    """Return which pairs of rows or trajectories have the same bits, bool ``[n]``."""
    first, end = mine.extents(pairs[:, 0])
    its_first, its_end = others.extents(pairs[:, 1])
    is_equal: np.ndarray = end - first == its_end - its_first
    offsets = np.append(0, np.cumsum((end - first) * is_equal))
    step = min(mine.step, others.step)
    for start in range(0, int(offsets[-1]), step):
        stop = min(start + step, int(offsets[-1]))
        which = numbers_of(offsets, start, stop)
        within = np.arange(start, stop) - offsets[which]
        words = joined_words(mine.reader.gather(first[which] + within))
        theirs = joined_words(others.reader.gather(its_first[which] + within))
        is_equal[which[(words != theirs).any(1)]] = False
    return is_equal
