"""Reductions of trajectories that blocks cut anywhere, against one loop a trajectory."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets_cli.replay.trajectories.trajectory_table import (
    REDUCTIONS,
    reduce_blocks,
    reduced_dtype,
)

WHOLE = [name for name in REDUCTIONS if name not in ("first", "last")]
VALUES = [-3.0, -0.0, 0.0, 0.5, 7.0, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("reduction", WHOLE)
@given(data=st.data())
def test_blocks_cut_anywhere_give_what_a_loop_gives(reduction: str, data: Any) -> None:
    lengths = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=6))
    rows = np.array(
        data.draw(st.lists(st.sampled_from(VALUES), min_size=(n := sum(lengths)), max_size=n))
    )
    rows = rows.astype(data.draw(st.sampled_from([np.float32, np.float64]))).reshape(-1, 1)
    cuts = data.draw(st.sets(st.integers(1, n - 1), max_size=5)) if n > 1 else ()
    offsets = np.cumsum([0, *lengths])
    found = np.empty((len(lengths), 1), reduced_dtype(reduction, rows.dtype))
    reduce_blocks(reduction, np.split(rows, sorted(cuts)), offsets, found)
    each = [rows[start:stop] for start, stop in itertools.pairwise(offsets)]
    with np.errstate(invalid="ignore"):  # of inf - inf
        right = [getattr(np, reduction)(part.astype(np.float64), axis=0) for part in each]
    np.testing.assert_array_equal(found, np.array(right))


@pytest.mark.parametrize("reduction", WHOLE)
def test_rows_of_several_numbers_are_reduced_one_by_one(reduction: str) -> None:
    rows = np.arange(24, dtype=np.int16).reshape(6, 2, 2) % 5
    found = np.empty((2, 2, 2), reduced_dtype(reduction, rows.dtype))
    reduce_blocks(reduction, [rows[:3], rows[3:]], np.array([0, 4, 6]), found)
    right = [getattr(np, reduction)(part, axis=0) for part in (rows[:4], rows[4:])]
    np.testing.assert_array_equal(found, np.array(right))
