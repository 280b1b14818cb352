"""Offsets, ends, lengths and numbers of trajectories, against slower arithmetic; moments too."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets_cli.schema.summary import RunningMoments, RunningStatistics
from datasets_cli.schema.trajectories import (
    ends_of,
    first_rows,
    lengths_of,
    num_records,
    numbers_of,
    offsets_from_ends,
    record_of,
    runs_within,
)

LENGTHS = st.lists(st.integers(1, 5), min_size=1, max_size=8)


@given(lengths=LENGTHS, data=st.data())
def test_every_form_of_a_table_says_the_same(lengths: list[int], data: st.DataObject) -> None:
    numbers = np.repeat(np.arange(len(lengths)), lengths)
    num_rows = len(numbers)
    is_end = np.append(numbers[1:] != numbers[:-1], True)
    offsets = offsets_from_ends(np.flatnonzero(is_end), num_rows)
    assert lengths_of(offsets).tolist() == lengths
    start = data.draw(st.integers(0, num_rows))
    stop = data.draw(st.integers(start, num_rows))
    assert numbers_of(offsets, start, stop).tolist() == numbers[start:stop].tolist()
    assert numbers_of(offsets, start, stop).dtype == np.int64
    assert ends_of(offsets, start, stop).tolist() == is_end[start:stop].tolist()


@given(lengths=LENGTHS, data=st.data())
def test_first_rows_cut_the_last_trajectory(lengths: list[int], data: st.DataObject) -> None:
    offsets = np.cumsum([0, *lengths])
    num_rows = data.draw(st.integers(1, int(offsets[-1])))
    cut = first_rows(offsets, num_rows)
    assert cut[-1] == num_rows and (lengths_of(cut) > 0).all()
    assert numbers_of(cut, 0, num_rows).tolist() == numbers_of(offsets, 0, num_rows).tolist()


@given(lengths=LENGTHS, data=st.data())
def test_runs_within_rows_are_those_of_their_numbers(
    lengths: list[int], data: st.DataObject
) -> None:
    offsets = np.cumsum([0, *lengths])
    start = data.draw(st.integers(0, int(offsets[-1]) - 1))
    stop = data.draw(st.integers(start + 1, int(offsets[-1])))
    numbers = np.repeat(np.arange(len(lengths)), lengths)[start:stop].tolist()
    found, starts = runs_within(offsets, start, stop)
    assert [*range(len(lengths))[found]] == sorted(set(numbers))
    assert starts.tolist() == [numbers.index(number) for number in sorted(set(numbers))]


@given(lengths=LENGTHS)
def test_records_count_a_step_more_than_rows_in_every_trajectory(lengths: list[int]) -> None:
    offsets = np.cumsum([0, *lengths])
    found = [
        record_of(offsets, trajectory, position)
        for trajectory, length in enumerate(lengths)
        for position in range(length + 1)
    ]
    assert found == list(range(num_records(offsets)))


@given(
    st.lists(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9), min_size=1, max_size=6),
)
def test_moments_of_blocks_are_those_of_all_numbers(blocks: list[list[float]]) -> None:
    whole = np.array([value for block in blocks for value in block])
    statistics = RunningStatistics()
    rows = RunningMoments(np.zeros(2), np.zeros(2))
    for block in blocks:
        values = np.array(block)
        statistics.add(values)
        pairs = np.stack([values, -values], axis=1)
        rows.merge(pairs.mean(0), ((pairs - pairs.mean(0)) ** 2).sum(0), len(pairs))
    expected = whole.mean(), whole.std(), whole.min(), whole.max()
    found = statistics.to_json()
    assert [found["mean"], found["std"]] == pytest.approx(expected[:2], rel=1e-6, abs=1e-3)
    assert (found["min"], found["max"]) == expected[2:]
    assert rows.count == len(whole)
    assert rows.mean == pytest.approx(np.array([whole.mean(), -whole.mean()]), abs=1e-3)
    deviation = np.sqrt(rows.squares / rows.count)
    assert deviation == pytest.approx(np.full(2, whole.std()), rel=1e-6, abs=1e-3)


def test_statistics_of_nothing_and_of_no_number_are_none() -> None:
    assert set(RunningStatistics().to_json().values()) == {None, 0.0}
    statistics = RunningStatistics()
    statistics.add(np.array([1.0, np.nan]))
    assert set(statistics.to_json().values()) == {None}
