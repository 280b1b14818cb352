"""Reading NeoRL-2's archives: a row for each step, with its recorded successor and two flags.

The flags are float32, and every break of the chain of successors is a flagged row.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from datasets_cli.formats.npz import NpzArray, read_headers, read_rows
from datasets_cli.recipe import SPLIT, TRAJECTORY_END, Block, Description, Key, Source, SourceError

from .catalogue import SPLITS, cut_of, find

KEYS: dict[str, Key] = {
    "obs": ("observation",),
    "action": ("action",),
    "reward": ("next", "reward"),
    "done": ("next", "terminated"),
    "truncated": ("next", "truncated"),
    "next_obs": ("next", "observation"),
}
FLAGS = ("done", "truncated")
LIKE = {"obs": "obs", "next_obs": "obs", "action": "action"}
"""Arrays with several numbers in a row, and the array of the train file with as many."""


def describe(source: Source) -> Description:
    """Return the scores, the cut if any, and notes on arrays that are not read."""
    entry = find(source.name, None) or source.entry  # that of the variant
    assert entry is not None
    metadata, notes = dict(entry.details), []
    if cut := cut_of(source.name):
        metadata["official_cut"] = cut
    for path in source.files.values():
        if others := read_headers(path).keys() - KEYS.keys():
            notes.append(f"unknown arrays of {path.name} are not read: {', '.join(sorted(others))}")
    return Description(metadata, tuple(notes), names={key: name for name, key in KEYS.items()})


def blocks(source: Source) -> Iterator[Block]:
    """Yield the rows of the train file, then of the val file."""
    files = list(_files(source))
    total_rows = sum(stop for *_, stop in files)
    for split, path, arrays, stop in files:
        first = 0
        for rows in _rows(path, arrays):
            # Rows behind the official cut are read too: the checksums are at the end.
            columns = {KEYS[name]: values[: max(0, stop - first)] for name, values in rows.items()}
            if count := len(columns["observation",]):
                columns[SPLIT] = np.full(count, split, object)
                columns[TRAJECTORY_END] = np.arange(first, first + count) == stop - 1
                yield Block(columns, total_rows=total_rows)
            first += len(rows["obs"])


def _files(source: Source) -> Iterator[tuple[str, Path, dict[str, NpzArray], int]]:
    """Yield the split, path and arrays of each file, and the number of its rows to convert."""
    cut = cut_of(source.name)
    train: dict[str, NpzArray] = {}
    for split in SPLITS:
        (path,) = (each for name, each in source.files.items() if name.endswith(f"-{split}.npz"))
        found = read_headers(path, KEYS)
        arrays = {name: found[name] for name in KEYS}
        stop = arrays["obs"].shape[0]
        if not stop:
            raise SourceError(f"{path.name} has no rows.", path=path, key="obs", found=0)
        train = train or arrays
        for name, each in arrays.items():
            _check_shape(path, name, each, train[LIKE[name]].shape[1:2] if name in LIKE else ())
        yield split, path, arrays, _cut_at(path, arrays, cut[split]) if cut else stop


def _check_shape(path: Path, name: str, array: NpzArray, row: tuple[int, ...]) -> None:
    expected, found = f"float32 {list(row)}", f"{array.dtype} {list(array.shape[1:])}"
    if found != expected:
        raise SourceError(
            f"{path.name}: a row of {name} is {found}; expected {expected}.",
            path=path,
            key=name,
            expected=expected,
            found=found,
        )


def _cut_at(path: Path, arrays: dict[str, NpzArray], num_trajectories: int) -> int:
    """Return the number of rows of the first flagged trajectories, as neorl2's loader counts."""
    first, stop, num_ends = 0, 0, 0
    for rows in _rows(path, {name: arrays[name] for name in FLAGS}):
        ends = np.flatnonzero((rows["done"] != 0) | (rows["truncated"] != 0))
        ends = ends[: num_trajectories - num_ends]
        if len(ends):
            stop, num_ends = first + int(ends[-1]) + 1, num_ends + len(ends)
        first += len(rows["done"])
    if not stop:
        raise SourceError(
            f"{path.name} has no trajectory that ends, so that it cannot be cut.",
            path=path,
            key="done",
        )
    return stop


def _rows(path: Path, arrays: dict[str, NpzArray]) -> Iterator[dict[str, np.ndarray]]:
    """Yield the rows of an archive in bounded blocks, after checking that flags are 0 or 1."""
    first = 0
    for rows in read_rows(path, arrays):
        for name in FLAGS:
            wrong = np.flatnonzero((rows[name] != 0) & (rows[name] != 1))
            if wrong.size:
                row, found = first + int(wrong[0]), rows[name].ravel()[wrong[0]]
                raise SourceError(
                    f"{path.name}: {name} is {found} in row {row:,}; expected 0 or 1.",
                    path=path,
                    key=name,
                    row=row,
                    expected="0 or 1",
                    found=str(found),
                )
        first += len(rows["done"])
        yield rows
