"""Matrices of parameters: a few cases have every pair of values, and the others are slow."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable
from typing import Any

import pytest


def pairs(case: tuple[Hashable, ...]) -> set[tuple[Hashable, ...]]:
    return set(itertools.combinations(enumerate(case), 2))


def pairwise(cases: Iterable[tuple[Hashable, ...]]) -> list[Any]:
    """Return all cases of a matrix; those that bring no new pair of values are marked slow."""
    matrix = [*cases]
    left = set().union(*map(pairs, matrix))
    chosen = set()
    while left:
        best = max(matrix, key=lambda case: len(left & pairs(case)))
        chosen.add(best)
        left -= pairs(best)
    slow = pytest.mark.slow
    return [pytest.param(*case, marks=() if case in chosen else slow) for case in matrix]
