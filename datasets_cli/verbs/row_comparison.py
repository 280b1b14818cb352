"""The rows of two datasets, read side by side: which differ, and which trajectories both have.

First all rows are compared. If a trajectory differs at its place, the trajectories of both datasets
are then matched by their digests. Memory holds a block of rows of each dataset and some bytes per
trajectory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from datasets_cli.catalogue.names import SUFFIX
from datasets_cli.core.progress import Progress, Rows
from datasets_cli.schema.columns import EPISODE, RECORDED_STEP, Key, rows_per_block
from datasets_cli.schema.shapes import Runs, runs_of_rows
from datasets_cli.schema.trajectories import numbers_of, runs_within
from datasets_cli.schema.transitions import steps_of
from datasets_cli.store.arrays import Columns, DatasetArrays, plain_numbers
from datasets_cli.verbs.difference import ColumnDifference, DatasetDifference
from datasets_cli.verbs.row_digests import HASHED, WORD_BYTES, trajectory_digests, words_of


class SharedSteps:
    """The steps of a file that are rows of both datasets, numbered from 0."""

    def __init__(self, num_steps: int, *final: np.ndarray) -> None:
        # final: the final steps of each dataset, which are not rows, int64, ascending.
        self.final, self._final_of_any = final, np.union1d(*final)
        self.num_shared = num_steps - len(self._final_of_any)

    def rows(self, place: int, numbers: np.ndarray) -> np.ndarray:
        """Return the rows of shared steps in one of the datasets, int64."""
        return self._rows(place, steps_of(numbers, self._final_of_any))

    def _rows(self, place: int, steps: np.ndarray) -> np.ndarray:
        rows: np.ndarray = steps - np.searchsorted(self.final[place], steps)
        return rows

    @property
    def only_rows(self) -> tuple[Runs, Runs]:
        """The rows of each dataset that the other dataset lacks."""
        first, second = self.final
        only = np.setdiff1d(second, first), np.setdiff1d(first, second)
        return runs_of_rows(self._rows(0, only[0])), runs_of_rows(self._rows(1, only[1]))


def shared_steps(first: DatasetArrays, second: DatasetArrays) -> SharedSteps | None:
    """Return the shared steps of a dataset and its repair; None for other datasets."""
    is_repair = f"{first.id}{SUFFIX}" == second.id or f"{second.id}{SUFFIX}" == first.id
    num_steps = len(first) + len(first.final)
    if not is_repair or len(second) + len(second.final) != num_steps:
        return None
    return SharedSteps(num_steps, first.final.steps, second.final.steps)


CACHED_PARTS = 6
"""The divisor of the size of blocks: smaller blocks stay in the cache between reads."""


def compare_rows(
    first: DatasetArrays, second: DatasetArrays, known: DatasetDifference, progress: Progress
) -> DatasetDifference:
    """Return the difference of two datasets, from their manifests and their rows."""
    shared = shared_steps(first, second)  # None where rows are compared by their numbers
    columns = {each.column.key: each for each in known.columns}
    if shared is not None:  # other ends are other numbers of trajectories
        columns.pop(EPISODE, None)
    changed = {key: [np.zeros(0, np.int64)] for key in columns}
    offsets, others = first.starts, second.starts
    num_both = min(len(offsets), len(others))
    is_moved = offsets[:num_both] != others[:num_both]
    is_other = np.ones(max(len(offsets), len(others)) - 1, np.bool_)  # of each trajectory
    is_other[: num_both - 1] = is_moved[:-1] | is_moved[1:] | (shared is not None)
    num_rows = min(len(first), len(second)) if shared is None else shared.num_shared
    progress(Rows(first.id, 0, num_rows))
    for stop, numbers, rows, other_rows in _blocks((first, second), columns, num_rows, shared):
        for key, leaf in rows.items():
            is_different = _differing(leaf, other_rows[key])
            if is_different is None:
                continue
            if shared is not None:
                changed[key].append(numbers[is_different])
            if columns[key].row is None:
                row = int(numbers[is_different.argmax()])
                trajectory = int(numbers_of(offsets, row, row + 1)[0])
                columns[key] = replace(columns[key], row=row, trajectory=trajectory)
            columns[key] = _with(columns[key], is_different, leaf, other_rows[key])
            if key[0] in HASHED and shared is None:
                trajectories, starts = runs_within(offsets, stop - len(numbers), stop)
                is_other[trajectories] |= np.logical_or.reduceat(is_different, starts)
        progress(Rows(first.id, stop, num_rows))
    for key in changed if shared else ():
        columns[key] = replace(columns[key], rows=runs_of_rows(np.concatenate(changed[key])))
    return replace(
        known,
        num_shared=_num_shared((first, second), known, is_other),
        columns=tuple(columns.values()),
        only_rows=shared.only_rows if shared else None,
        num_compared=num_rows,
        # Offset k + 1 is the end of trajectory k; the first one is 0 in both.
        trajectory=int(is_moved.argmax()) - 1 if is_moved.any() else None,
        final_difference=_final_difference(first, second, [*columns], shared),
    )


def _final_difference(
    first: DatasetArrays, second: DatasetArrays, keys: list[Key], shared: SharedSteps | None
) -> tuple[int, Key] | None:
    """Return the place of the first final step that differs, and its first column that does."""
    one = other = np.arange(min(len(first.final), len(second.final)))
    if shared is not None:  # of the same steps; other ends are other numbers of trajectories
        _, one, other = np.intersect1d(shared.final[0], shared.final[1], return_indices=True)
    else:
        keys = [EPISODE, RECORDED_STEP, *keys]
    size = rows_per_block(CACHED_PARTS * max(first.row_bytes, second.row_bytes))
    found: dict[int, Key] = {}
    for key in filter(first.final.keys.__contains__, keys):
        ours, theirs = first.final[key], second.final[key]
        for start in range(0, len(one), size):
            part = slice(start, start + size)
            different = _differing(ours[one[part]], theirs[other[part]])
            if different is not None:
                found.setdefault(int(one[part][different.argmax()]), key)
                break
    return min(found.items()) if found else None


def _blocks(
    datasets: Sequence[DatasetArrays], keys: Iterable[Key], num: int, shared: SharedSteps | None
) -> Iterator[tuple[int, np.ndarray, Columns, Columns]]:
    """Yield the rows to compare: the count so far, their numbers, and the rows of each dataset."""
    readers = [each.arrays_of(frozenset(keys)) for each in datasets]
    step = rows_per_block(CACHED_PARTS * max(each.row_bytes for each in datasets))
    for start in range(0, num, step):
        numbers = np.arange(start, stop := min(start + step, num))
        if shared is None:
            first, second = (each.run(start, stop) for each in readers)
        else:
            numbers, others = (shared.rows(place, numbers) for place in (0, 1))
            first, second = readers[0].gather(numbers), readers[1].gather(others)
        yield stop, numbers, first, second


def _num_shared(
    datasets: Sequence[DatasetArrays], known: DatasetDifference, is_other: np.ndarray
) -> tuple[int, int] | None:
    """Return the number of trajectories of each dataset that the other contains."""
    # is_other: whether each trajectory differs between the datasets, bool `[K]`.
    keys = [each.column.key for each in known.columns if each.column.key[0] in HASHED]
    if not keys or any(each.key[0] in HASHED for each in (*known.only[0], *known.only[1])):
        return None
    if not is_other.any():
        return len(is_other), len(is_other)
    first, second = (trajectory_digests(each, keys) for each in datasets)
    return _num_among(first, second), _num_among(second, first)


def _num_among(digests: np.ndarray, others: np.ndarray) -> int:
    """Count the digests that ``others`` contains, ten times as fast as ``np.isin``."""
    digests, others = np.sort(digests), np.sort(others)
    begins, ends = (np.searchsorted(others, digests, side) for side in ("left", "right"))
    return int((begins < ends).sum())


def _differing(first: np.ndarray, second: np.ndarray) -> np.ndarray | None:
    """Return a mask of the rows that differ in a bit or a text, bool ``[n]``; None if all agree."""
    if first.dtype == object:
        unequal = first != second
    else:
        size = math.gcd(WORD_BYTES, first[0].nbytes)
        unequal = words_of(first, size) != words_of(second, size)
    if not unequal.any():
        return None
    unequal = unequal.reshape(len(first), -1)
    if unequal[:, 0].all():
        return np.ones(len(first), np.bool_)
    # For short rows twice as fast as `any`.
    return np.logical_or.reduceat(unequal.reshape(-1), np.arange(0, unequal.size, unequal.shape[1]))


def _with(
    known: ColumnDifference, is_different: np.ndarray, first: np.ndarray, second: np.ndarray
) -> ColumnDifference:
    """Return the difference of a column, updated with differing rows ``[n, *shape]`` of each."""
    if not known.num_different:
        row = int(is_different.argmax())
        values = [each[row : row + 1].reshape(-1) for each in (first, second)]
        is_unequal = _differing(*values)
        assert is_unequal is not None, "the row differs"
        place = int(is_unequal.argmax())
        index = tuple(map(int, np.unravel_index(place, known.column.shape)))
        shown = _shown(*(each[place : place + 1] for each in values))
        known = replace(known, index=index, values=shown)
    largest = _largest_difference(first, second, known.largest_difference or 0)
    num_different = known.num_different + int(is_different.sum())
    return replace(known, num_different=num_different, largest_difference=largest)


@np.errstate(all="ignore")
def _largest_difference(first: np.ndarray, second: np.ndarray, known: float) -> float | None:
    """Return the largest difference of two finite numbers, and of the known one; None of text."""
    if first.dtype == object or (numbers := plain_numbers(first)) is None:
        return None
    others = plain_numbers(second)
    assert others is not None, "both have one type"
    if numbers.dtype.kind == "b":
        return 1
    if numbers.dtype.kind in "iu":
        # As an unsigned number it is right also where it is too large for the type.
        difference = np.maximum(numbers, others) - np.minimum(numbers, others)
        return max(known, int(difference.view(f"u{difference.itemsize}").max()))
    if numbers.dtype.kind == "f":
        difference = numbers - others
        largest = np.abs(difference, out=difference).max()
        if largest < difference.dtype.type(known):
            return known
        if np.isfinite(largest):
            # Rounding keeps the order: the largest difference is among equally large ones.
            numbers, others = (each[difference == largest] for each in (numbers, others))
    difference = np.abs(numbers.astype(np.complex128) - others)
    return max(known, float(difference.max(initial=0, where=np.isfinite(difference))))


def _shown(first: np.ndarray, second: np.ndarray) -> tuple[str, ...]:
    """Return two values ``[1]`` as text; with their bits where that is the same."""
    if first.dtype == object:
        return repr(first[0]), repr(second[0])
    plain = (plain_numbers(each) for each in (first, second))
    texts = ["" if each is None else str(each[0]) for each in plain]
    if texts[0] == texts[1]:
        bits = (each.tobytes()[::-1].hex() for each in (first, second))
        texts = [f"{text} (0x{each})".lstrip() for text, each in zip(texts, bits, strict=True)]
    return tuple(texts)
