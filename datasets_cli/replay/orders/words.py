"""Random words that a key gives: the same on every machine and with every version of numpy."""

from __future__ import annotations

import numpy as np

# SplitMix64: Steele, Lea and Flood, 2014, "Fast splittable pseudorandom number generators".
_STEP = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)


def random_words(key: int, count: int) -> np.ndarray:
    """Return random words uint64 ``[count]``."""
    # Mixed first, because the words of key 1 would otherwise be those of key 0 one word later.
    start = _mix(np.array([key % 2**64], np.uint64))
    return _mix(start + _STEP * np.arange(1, count + 1, dtype=np.uint64))


def _mix(words: np.ndarray) -> np.ndarray:
    """Return words of which each bit depends on all bits of the word that was given."""
    mixed: np.ndarray = words ^ (words >> _SHIFTS[0])
    mixed *= _FACTORS[0]
    mixed ^= mixed >> _SHIFTS[1]
    mixed *= _FACTORS[1]
    mixed ^= mixed >> _SHIFTS[2]
    return mixed
