"""Curves: few points of a number, among them its lowest and highest, against all of its values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from datasets_cli import UsageError, peek
from datasets_cli.config import Config
from datasets_cli.install.find import open_installed
from datasets_cli.ui import curves
from datasets_cli.ui.curves import MOST_POINTS, bucket_rows, curves_of, decimated
from tests.support.mixture_members import rows_of, write

LENGTHS = (3, 9_000, 5)
DTYPES = st.sampled_from(["f2", "f4", "f8", "i1", "i8", "u8", "?"])
VALUES = DTYPES.flatmap(
    lambda dtype: arrays.arrays(dtype, st.tuples(st.integers(1, 300), st.integers(1, 3)))
)


def points(values: np.ndarray, most: int) -> list[np.ndarray]:
    return [*decimated(values, bucket_rows(len(values), most))]


def finite(values: np.ndarray) -> np.ndarray:
    return values[np.isfinite(values)] if values.dtype.kind == "f" else values


@given(VALUES, st.integers(30, 90))
def test_lowest_and_highest_are_always_among_the_points(values: np.ndarray, most: int) -> None:
    for number, places in enumerate(points(values, most)):
        every, kept = finite(values[:, number]), finite(values[places, number])
        assert len(every) == 0 or (kept.min(), kept.max()) == (every.min(), every.max())


@given(VALUES, st.integers(30, 90))
def test_points_are_few_and_in_order_and_of_the_rows(values: np.ndarray, most: int) -> None:
    for places in points(values, most):
        assert 1 <= len(places) <= most
        assert (np.diff(places) > 0).all()
        assert places[0] >= 0 and places[-1] < len(values)


@given(VALUES)
def test_where_rows_are_fewer_than_points_all_are_there(values: np.ndarray) -> None:
    for places in points(values, len(values)):
        assert places.tolist() == [*range(len(values))]


@given(VALUES, st.integers(30, 90))
def test_what_is_not_finite_shows_in_its_bucket(values: np.ndarray, most: int) -> None:
    size = bucket_rows(len(values), most)
    for number, places in enumerate(decimated(values, size)):
        gone = {row // size for row in range(len(values)) if not np.isfinite(values[row, number])}
        assert gone == {row // size for row in places if not np.isfinite(values[row, number])}


@pytest.fixture
def spiky(config: Config) -> str:
    """A dataset whose second trajectory is long: one spike, a NaN, an infinite number."""
    rows = rows_of(0, LENGTHS)
    wave = np.sin(np.arange(sum(LENGTHS)) / 50).astype(np.float32)[:, None].repeat(3, 1)
    wave[3 + 4_321, 1], wave[3 + 700, 2], wave[3 + 8_999, 2] = 99, np.nan, -np.inf
    write(config.root / "datasets" / "test" / "spiky", rows | {("observation",): wave}, "ted")
    return "test/spiky"


def curves_in(id: str, config: Config, *arguments: Any) -> curves.Curves:
    return curves_of(open_installed(id, config), 1, *arguments)


def test_a_spike_of_one_row_is_a_point_and_each_point_a_value_of_peek(
    spiky: str, config: Config
) -> None:
    found = curves_in(spiky, config, ["observation"])
    (peeked,) = peek(spiky, trajectory=1, n=9_000, columns="observation").columns
    assert [each.name for each in found.columns["observation"]] == [
        f"observation[{number}]" for number in range(3)
    ]
    for number, curve in enumerate(found.columns["observation"]):
        assert len(curve.steps) <= MOST_POINTS
        values = [np.nan if value is None else float(value) for value in curve.values]
        np.testing.assert_array_equal(values, peeked.values[curve.steps, number])
    spike = found.columns["observation"][1]
    assert spike.values[spike.steps.index(4_321)] == 99


def test_nan_is_null_and_infinite_numbers_are_text(spiky: str, config: Config) -> None:
    curve = curves_in(spiky, config, ["observation"], (8_000, None)).columns["observation"][2]
    assert curve.values[-1] == "-Infinity"
    (curve,) = curves_in(spiky, config, ["observation"], (700, 701)).columns["observation"][2:]
    assert (curve.steps, curve.values) == ([700], [None])


def test_a_part_of_a_trajectory_has_all_its_steps(spiky: str, config: Config) -> None:
    found = curves_in(spiky, config, ["next.reward"], (100, 2_000))
    (curve,) = found.columns["next.reward"]
    assert (found.length, found.start, found.stop) == (9_000, 100, 2_000)
    assert (curve.name, curve.steps) == ("next.reward", [*range(100, 2_000)])
    assert curve.values == [(3 + step) / 2 for step in range(100, 2_000)]


def test_blocks_of_any_size_give_the_same_points(
    spiky: str, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = curves_in(spiky, config, ["observation"])
    monkeypatch.setattr(curves, "MOST_VALUES", 100)
    monkeypatch.setattr("datasets_cli.ui.curves.rows_per_block", lambda row_bytes: 7)
    assert curves_in(spiky, config, ["observation"]) == whole


def test_more_rows_than_an_answer_reads_are_left_out_with_a_note(
    spiky: str, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curves, "MOST_ROWS", 50)
    found = curves_in(spiky, config, ["mark"], (10, None))
    assert (found.start, found.stop) == (10, 60)
    assert found.notes == ("50 of 8,990 steps are shown: choose others",)


def test_numbers_and_columns_beyond_the_most_are_named(
    spiky: str, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curves, "MOST_NUMBERS", 2)
    monkeypatch.setattr(curves, "MOST_COLUMNS", 1)
    found = curves_in(spiky, config, ["observation", "mark", "action"])
    assert [len(each) for each in found.columns.values()] == [2]
    assert found.notes == (
        "observation: 2 of 3 numbers are shown",
        "not shown, as more than 1 columns: mark, action",
    )


@pytest.mark.parametrize(("trajectory", "names"), [(3, ["mark"]), (0, ["nothing"])])
def test_no_such_trajectory_or_column_is_refused(
    trajectory: int, names: list[str], spiky: str, config: Config
) -> None:
    with pytest.raises(UsageError):
        curves_of(open_installed(spiky, config), trajectory, names)


def test_no_more_is_read_than_the_steps_that_are_shown(
    spiky: str, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, read = open_installed(spiky, config), []
    arrays_of = dataset.arrays_of

    def spied(keys: frozenset[Any]) -> Any:
        rows = arrays_of(keys)
        run = rows.run
        rows.run = lambda start, stop: (read.append((*keys, start, stop)), run(start, stop))[1]  # type: ignore[method-assign]
        return rows

    monkeypatch.setattr(dataset, "arrays_of", spied)
    curves_of(dataset, 1, ["mark"], (40, 90))
    assert read == [(("mark",), 43, 93)]
