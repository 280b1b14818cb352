"""A view as a file: which dataset, by its content, and which trajectories; no rows.

{"format": "rlds view", "version": 1, "id": "d4rl/hopper-medium-v2", "content": "9f86...",
 "steps": ["filter('return > 300')"],
 "trajectories": [[0, 5], [9, 1]],      from 0 on five of them, then number 9
 "cut": [[5, 20, 100]],                 of the sixth of these only the rows 20 to 119 of it
 "digest": "2c26..."}                   of this file
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from datasets_cli.checked_json import Check, decode
from datasets_cli.errors import DamagedDataset, MissingFile, UsageError
from datasets_cli.schema.trajectories import lengths_of
from datasets_cli.sources.new_files import replacing
from datasets_cli.sources.regular_file import read_bounded
from datasets_cli.store.sealed_json import check_seal, parse, seal
from datasets_cli.store.selection import Selection
from datasets_cli.system_errors import check_memory

FORMAT = "rlds view"
VERSION = 1
SUFFIX = ".json"
MAX_BYTES = 256 << 20
"""Far more than the numbers of any dataset's trajectories take."""


def is_view_file(name: str | os.PathLike[str]) -> bool:
    """Return whether what a user names is a view's file, and not a dataset."""
    return os.fspath(name).endswith(SUFFIX)


@dataclass(frozen=True)
class SavedView:
    """What a view's file says."""

    # trajectories: first numbers and counts of them, int64 `[n, 2]`.
    # cut: place in the view, first row in the trajectory and number of rows of those that are not
    # whole, int64 `[n, 3]`.

    path: Path
    id: str
    content: str
    steps: tuple[str, ...]
    trajectories: np.ndarray
    cut: np.ndarray

    def selection(self, content: str, offsets: np.ndarray) -> Selection:
        """Return the selection."""
        # offsets: of its trajectories, int64 `[T + 1]`.
        if content != self.content:
            raise UsageError(
                f"{self.path} is a view of {self.id} with the content {self.content[:16]}; what is "
                f"installed now has the content {content[:16]}, other data. Make the view again, "
                "or install what it was made of."
            )
        first, counts = self.trajectories.T
        is_there = (first + counts <= len(offsets) - 1).all()
        _check(self.path, is_there, "a trajectory that does not exist")
        check_memory(3 * 8 * int(counts.sum()), str(self.path))
        # Each run of numbers is one that rises by 1 from its first.
        skipped = np.cumsum(counts) - counts
        numbers = np.arange(int(counts.sum())) + np.repeat(first - skipped, counts)
        lengths = lengths_of(offsets)[numbers]
        firsts = np.zeros_like(lengths)
        place, row, length = self.cut.T
        _check(self.path, (place < len(numbers)).all(), "a place that it does not have")
        _check(self.path, (row + length <= lengths[place]).all(), "rows that do not exist")
        firsts[place], lengths[place] = row, length
        return Selection(self.content, numbers, firsts, lengths, self.steps)


@dataclass(frozen=True)
class _Document:
    """What must be in a view's file, beside its digest."""

    format: Annotated[str, Check(f"the format {FORMAT!r}", FORMAT.__eq__)]
    version: Annotated[int, Check(f"the version {VERSION}", VERSION.__eq__)]
    id: str
    content: str
    trajectories: list[Any]
    cut: list[Any]
    steps: tuple[str, ...] = ()


def save_view(path: Path, id: str, selection: Selection, offsets: np.ndarray) -> None:
    """Write a view into a file, in place of an older one."""
    # offsets: of the dataset's trajectories, int64 `[T + 1]`.
    numbers = selection.numbers
    begins = np.flatnonzero(np.diff(numbers, prepend=-2) != 1)
    counts = np.diff(begins, append=len(numbers))
    cut = np.flatnonzero(~selection.are_whole(offsets))
    document = {
        "format": FORMAT,
        "version": VERSION,
        "id": id,
        "content": selection.content,
        "steps": list(selection.steps),
        "trajectories": np.stack((numbers[begins], counts), 1).tolist(),
        "cut": np.stack((cut, selection.firsts[cut], selection.lengths[cut]), 1).tolist(),
    }
    if not path.parent.is_dir():
        raise MissingFile(f"There is no folder {path.parent} for {path.name}. Make it first.")
    with replacing(path) as new:
        new.write_bytes(seal(document))


def read_view(path: Path) -> SavedView:
    """Read what ``save_view`` wrote."""
    try:
        data = read_bounded(path, MAX_BYTES)
        document = parse(data)
        check_seal(data, document)
        saved = decode(_Document, document)
    except FileNotFoundError as error:
        raise MissingFile(
            f"There is no {path}. What ends in {SUFFIX} is the file of a view, which its save() "
            "wrote."
        ) from error
    except DamagedDataset:
        raise
    except ValueError as error:
        raise _damaged(path, str(error)) from error
    trajectories, cut = _numbers(path, saved.trajectories, 2), _numbers(path, saved.cut, 3)
    return SavedView(path, saved.id, saved.content, saved.steps, trajectories, cut)


def _numbers(path: Path, rows: list[Any], width: int) -> np.ndarray:
    """Return whole numbers from 0 on, int64 ``[n, width]``; those that count are at least 1."""
    if not rows:
        return np.zeros((0, width), np.int64)
    try:
        numbers = np.array(rows)
    except ValueError as error:
        raise _damaged(path, "lists of several lengths") from error
    fits = numbers.dtype == np.int64 and numbers.ndim == 2 and numbers.shape[1] == width
    _check(path, fits and (numbers >= 0).all() and (numbers[:, -1] > 0).all(), "no numbers")
    _check(path, fits and (numbers < 2**53).all(), "numbers that no dataset has")
    return numbers


def _check(path: Path, holds: object, found: str) -> None:
    if not holds:
        raise _damaged(path, f"it has {found}")


def _damaged(path: Path, why: str) -> DamagedDataset:
    return DamagedDataset(
        f"{path} is not a view's file as save() writes it: {why}. Save the view again."
    )
