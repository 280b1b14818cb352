"""Statistics of a column, for all numbers and all blocks, against numpy's of the whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from datasets_cli.schema.column_statistics import MEASURES, QUANTILES, ColumnStatistics

ROWS = arrays.arrays(
    st.sampled_from([np.float32, np.float64, np.int32, np.uint8, np.bool_]),
    st.tuples(st.integers(1, 40), st.integers(1, 3)),
)


def measured(rows: np.ndarray, cuts: list[int]) -> tuple[dict[str, np.ndarray], ColumnStatistics]:
    blocks = [part for part in np.split(rows, sorted(cut % len(rows) for cut in cuts)) if len(part)]
    statistics, *others = [ColumnStatistics(block, np.arange(len(block))) for block in blocks]
    for other in others:
        statistics.join(other)
    return dict(zip(MEASURES, statistics.measures(), strict=True)), statistics


@given(ROWS, st.lists(st.integers(0, 40), max_size=4))
def test_blocks_have_the_statistics_of_the_whole(rows: np.ndarray, cuts: list[int]) -> None:
    found, _ = measured(rows, cuts)
    numbers = rows.astype(np.float64)
    finite = np.ma.masked_invalid(numbers)
    small = np.abs(numbers[np.isfinite(numbers)]).max(initial=0) < 1e100
    assert found["count"].tolist() == finite.count(0).tolist()
    assert found["nan"].tolist() == np.isnan(numbers).sum(0).tolist()
    assert found["infinite"].tolist() == np.isinf(numbers).sum(0).tolist()
    np.testing.assert_array_equal(found["min"], finite.min(0).filled(np.nan))
    np.testing.assert_array_equal(found["max"], finite.max(0).filled(np.nan))
    constant = [len(np.unique(column)) == 1 for column in rows.T]
    assert found["constant"].tolist() == constant
    if small:
        scale = float(np.abs(finite).max()) if finite.count() else 1.0
        np.testing.assert_allclose(
            found["mean"], finite.mean(0).filled(np.nan), rtol=1e-9, atol=1e-9 * scale
        )
        np.testing.assert_allclose(
            found["std"], finite.std(0).filled(np.nan), rtol=1e-6, atol=1e-6 * scale
        )


@given(ROWS, st.lists(st.integers(0, 40), max_size=4))
def test_distinct_values_are_counted(rows: np.ndarray, cuts: list[int]) -> None:
    _, statistics = measured(rows, cuts)
    values, counts = np.unique(rows[np.isfinite(rows.astype(np.float64))], return_counts=True)
    expected = dict(zip(values.tolist(), counts.tolist(), strict=True))
    assert statistics.distinct == (expected if len(values) <= 64 else None)


def test_quantiles_are_of_finite_sampled_numbers() -> None:
    rows = np.array([[1.0], [np.nan], [3.0], [np.inf], [2.0], [100.0]])
    statistics = ColumnStatistics(rows, np.arange(5))
    found = dict(zip(MEASURES, statistics.measures(), strict=True))
    expected = np.quantile([1.0, 2.0, 3.0], QUANTILES)
    assert [float(found[name][0]) for name in MEASURES[-5:]] == expected.tolist()
    assert statistics.quantiles().tolist() == expected.tolist()


@pytest.mark.parametrize("planted", [None, np.nan, np.inf])
def test_rows_that_are_reduced_side_by_side_have_the_same_statistics(planted: float | None) -> None:
    rows = np.random.default_rng(0).standard_normal((5003, 17)).astype(np.float32)
    rows[:, 3] = 2.5
    if planted is not None:
        rows[4000, 5] = planted
    found, statistics = measured(rows, [1700])
    finite = np.ma.masked_invalid(rows.astype(np.float64))
    for name in ("mean", "std", "min", "max"):
        np.testing.assert_allclose(found[name], getattr(finite, name)(0), rtol=1e-12, atol=1e-15)
    assert np.flatnonzero(found["constant"]).tolist() == [3]
    expected = np.nanquantile(finite.filled(np.nan), QUANTILES, axis=0)
    np.testing.assert_array_equal([found[name] for name in MEASURES[-5:]], expected)
    whole = np.nanquantile(finite.filled(np.nan), QUANTILES)
    np.testing.assert_array_equal(statistics.quantiles(), whole)


def test_samples_of_many_blocks_are_held_as_few_arrays() -> None:
    """Many small arrays among large ones that go would keep the memory of both."""
    rows = np.random.default_rng(0).standard_normal((1000, 2))
    statistics, *others = [ColumnStatistics(block, np.arange(10)) for block in np.split(rows, 100)]
    for other in others:
        statistics.join(other)
    assert len(statistics._sampled) < 20
    expected = np.quantile(rows, QUANTILES, axis=0)
    np.testing.assert_allclose(statistics.measures()[-5:], expected)
