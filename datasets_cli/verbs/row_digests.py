"""Digests of rows and of trajectories, equal for equal bits in every layout.

``rlds diff`` and ``rlds overlap`` both find trajectories by them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import sha256

import numpy as np

from datasets_cli.schema.columns import Key, rows_per_block
from datasets_cli.schema.trajectories import numbers_of, runs_within
from datasets_cli.store.arrays import Columns, DatasetArrays

HASHED = frozenset({"observation", "action"})
"""The columns that identify a row: those with these names, and all columns nested below them."""

WORD_BYTES = 8  # at most; rows are compared and joined in words of this size
_ODD = np.uint64(0x9E3779B97F4A7C15)


def trajectory_digests(dataset: DatasetArrays, keys: Sequence[Key]) -> np.ndarray:
    """Return the digest of each trajectory over some columns, uint64 ``[K]``."""
    reader, starts = dataset.arrays_of(frozenset(keys)), dataset.starts
    totals, step = np.zeros(len(starts) - 1, np.uint64), rows_per_block(dataset.row_bytes)
    for start in range(0, len(dataset), step):
        rows = reader.run(start, min(start + step, len(dataset)))
        add_to_trajectories(totals, row_digests(rows), starts, start)
    return totals


def row_digests(rows: Columns) -> np.ndarray:
    """Return the digest of each row, uint64 ``[n]``."""
    words = joined_words(rows)
    digests = np.zeros(len(words), np.uint64)
    for column in np.ascontiguousarray(words.T):  # in order: it affects the digest
        digests = _mixed(digests ^ column)
    return digests


def add_to_trajectories(
    totals: np.ndarray, digests: np.ndarray, starts: np.ndarray, start: int
) -> None:
    """Add the digests of consecutive rows, from row ``start``, to their trajectories."""
    stop = start + len(digests)
    # A row is mixed with its place in the trajectory: the order of rows counts too.
    places = np.arange(start, stop) - starts[numbers_of(starts, start, stop)]
    placed = _mixed(digests ^ (places.astype(np.uint64) * _ODD))
    trajectories, begins = runs_within(starts, start, stop)
    totals[trajectories] += np.add.reduceat(placed, begins)


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """Return 64-bit numbers, each bit of which depends on many bits of the original."""
    numbers = (numbers ^ (numbers >> np.uint64(32))) * _ODD
    numbers ^= numbers >> np.uint64(29)
    return numbers


def joined_words(rows: Columns) -> np.ndarray:
    """Return the bits of rows as unsigned words, ``[n, words of a row]``; text as its digest."""
    leaves = [rows[key] for key in sorted(rows)]
    leaves = [_text_digests(leaf) if leaf.dtype == object else leaf for leaf in leaves]
    # The widest words that all columns divide into: numpy copies bytes one by one.
    size = math.gcd(WORD_BYTES, *(leaf[0].nbytes for leaf in leaves))
    return np.concatenate([words_of(leaf, size) for leaf in leaves], axis=1)


def words_of(leaf: np.ndarray, size: int) -> np.ndarray:
    """Return the bits of a column as unsigned words of ``size`` bytes, ``[n, words of a row]``."""
    flat = np.ascontiguousarray(leaf).reshape(len(leaf), math.prod(leaf.shape[1:]))
    return flat.view(f"u{size}")


def _text_digests(leaf: np.ndarray) -> np.ndarray:
    """Return the SHA-256 of each row of text, uint8 ``[n, 32]``."""
    # Equal rows have equal `repr`s, which also escape what UTF-8 cannot encode.
    digests = b"".join(sha256(repr(row).encode()).digest() for row in leaf.tolist())
    return np.frombuffer(digests, np.uint8).reshape(len(leaf), -1)
