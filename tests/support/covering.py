"""Matrices of parameters: some cases cover all values, or all pairs of them; others are slow."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable
from typing import Any

import pytest


def covering(cases: Iterable[tuple[Hashable, ...]], together: int = 2) -> list[Any]:
    """Return all cases of a matrix; those that are slow bring no new values ``together``."""
    matrix = {case: {*itertools.combinations(enumerate(case), together)} for case in cases}
    left = set().union(*matrix.values())
    chosen = set()
    while left:
        best = max(matrix, key=lambda case: len(left & matrix[case]))
        chosen.add(best)
        left -= matrix[best]
    slow = pytest.mark.slow
    return [pytest.param(*case, marks=() if case in chosen else slow) for case in matrix]
