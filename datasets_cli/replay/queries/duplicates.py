"""Trajectories that are there twice, bit for bit."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import NestedKey, key_of
from datasets_cli.replay.draws.orders import random_words
from datasets_cli.schema.bits import to_array
from datasets_cli.schema.columns import EPISODE, Key, show_key
from datasets_cli.schema.tree import entry
from datasets_cli.store.dataset import Dataset
from datasets_cli.store.layouts.protocol import Rows

NUMBERING: tuple[Key, ...] = (EPISODE, ("collector", "traj_ids"))
"""Leaves that number trajectories, and so differ between equal ones."""

BLOCK_ROWS = 1024
"""Rows that are read at once."""


def compared_keys(keys: Iterable[NestedKey]) -> list[NestedKey]:
    """Return the keys that a user asks to compare, as a list."""
    is_list = isinstance(keys, Iterable) and not isinstance(keys, str)
    found = [*keys] if is_list else []
    if not found or not all(isinstance(key, str | tuple) for key in found):
        raise UsageError(
            "drop_duplicates() compares a list of leaves, such as ['observation', 'action'], or "
            f"all of them where none is given; not {keys!r}."
        )
    return found


def distinct_places(dataset: Dataset, keys: Iterable[NestedKey] | None) -> np.ndarray:
    """Return the first of each group of equal trajectories, int64 ``[n]``, in their order."""
    leaves = _leaves(dataset, keys)
    rows = dataset.rows_of(frozenset(leaves))
    offsets = dataset.offsets.numpy()
    # Few trajectories have the length and the first row of another one, and only those are read.
    marks = _marks(rows, leaves, offsets)
    _, groups, sizes = np.unique(marks, axis=0, return_inverse=True, return_counts=True)
    kept = np.ones(len(marks), np.bool_)
    seen: set[bytes] = set()
    alike = np.flatnonzero(sizes[groups.reshape(-1)] > 1)
    for place in alike.tolist():
        digest = _digest(rows, leaves, int(offsets[place]), int(offsets[place + 1]))
        kept[place] = digest not in seen
        seen.add(digest)
    return np.flatnonzero(kept)


def _leaves(dataset: Dataset, keys: Iterable[NestedKey] | None) -> list[Key]:
    known = [column.key for column in dataset.manifest.columns]
    if keys is None:
        return [key for key in known if key not in NUMBERING]
    found: list[Key] = []
    for key in map(key_of, keys):
        below = [name for name in known if name[: len(key)] == key]
        if not below:
            raise UsageError(
                f"{dataset.manifest.id} has no {show_key(key)} of numbers to compare. It has: "
                f"{', '.join(map(show_key, known))}."
            )
        found += below
    return sorted(set(found))


def _marks(rows: Rows, leaves: list[Key], offsets: np.ndarray) -> np.ndarray:
    """Return what equal trajectories have in common, uint64 ``[K, 2]``: length, first row's sum."""
    marks = np.empty((len(offsets) - 1, 2), np.uint64)
    marks[:, 0] = np.diff(offsets)
    for begin in range(0, len(marks), BLOCK_ROWS):
        data = _bytes_of(rows, leaves, offsets[begin : begin + BLOCK_ROWS][: len(marks) - begin])
        weights = random_words(0, data.shape[1])
        marks[begin : begin + len(data), 1] = data.astype(np.uint64) @ weights  # of 64 bits
    return marks


def _digest(rows: Rows, leaves: list[Key], start: int, stop: int) -> bytes:
    """Return a digest of the rows ``start`` to ``stop - 1``, read in blocks."""
    found = hashlib.blake2b(digest_size=32)
    for begin in range(start, stop, BLOCK_ROWS):
        found.update(_bytes_of(rows, leaves, np.arange(begin, min(begin + BLOCK_ROWS, stop))).data)
    return found.digest()


def _bytes_of(rows: Rows, leaves: list[Key], index: np.ndarray) -> np.ndarray:
    """Return the bytes of rows int64 ``[B]``, uint8 ``[B, n]``."""
    tree = rows.gather(torch.from_numpy(np.ascontiguousarray(index)))
    parts = (np.ascontiguousarray(to_array(entry(tree, key).cpu())) for key in leaves)
    return np.concatenate([_as_bytes(part) for part in parts], axis=1)


def _as_bytes(values: np.ndarray) -> np.ndarray:
    return values.reshape(len(values), -1).view(np.uint8).reshape(len(values), -1)
