"""The order of a mixture's epoch: of each member as many items as are wanted."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from datasets_cli.replay.samplers.epochs import FEW_BOUNDS, bounds_reached, mixed_order
from tests.support.trajectory_rows import chi_square_score


@given(
    members=st.lists(st.tuples(st.integers(1, 60), st.integers(0, 200)), min_size=1, max_size=5),
    key=st.integers(0, 2**62),
)
def test_every_item_comes_as_often_as_others_of_its_member(
    members: list[tuple[int, int]], key: int
) -> None:
    lengths, counts = ([pair[which] for pair in members] for which in (0, 1))
    order = mixed_order(lengths, counts, key)
    drawn = Counter(order.at(np.arange(len(order))).tolist())
    assert len(order) == sum(counts)
    begin = 0
    for length, count in members:
        times = [drawn[item] for item in range(begin, begin + length)]
        assert sum(times) == count
        assert max(times) - min(times) <= 1
        begin += length


def test_members_are_mixed_all_along_the_order() -> None:
    lengths, counts = [50_000, 3000, 700], [50_000, 30_000, 20_000]
    items = mixed_order(lengths, counts, 3).at(np.arange(100_000))
    member = np.searchsorted(np.cumsum(lengths), items, side="right")
    for part in np.split(member, 10):
        found = np.bincount(part, minlength=3)
        assert abs(chi_square_score(found, np.array(counts) / 10)) < 4


def test_any_places_give_the_items_that_all_places_do() -> None:
    order = mixed_order([40, 9000, 7], [40, 4500, 70], 11)
    every = order.at(np.arange(len(order)))
    places = np.random.default_rng(0).integers(0, len(order), 300)
    assert np.array_equal(order.at(places), every[places])


def test_bounds_are_counted_alike_for_few_and_for_many() -> None:
    rng = np.random.default_rng(0)
    for count in (0, 1, 3, FEW_BOUNDS, FEW_BOUNDS + 1, 400):
        bounds = np.sort(rng.integers(0, 50, count))
        values = rng.integers(0, 51, 200)
        slow = [sum(bound <= value for bound in bounds.tolist()) for value in values.tolist()]
        assert bounds_reached(values, bounds).tolist() == slow


def test_which_items_come_once_more_is_drawn() -> None:
    more, part = set(), set()
    for key in range(40):
        order = mixed_order([4, 4], [6, 2], key)
        drawn = Counter(order.at(np.arange(8)).tolist())
        more.add(tuple(item for item in range(4) if drawn[item] == 2))
        part.add(tuple(item for item in range(4, 8) if drawn[item]))
    assert len(more) == len(part) == 6  # every pair of four items


def test_an_epoch_of_a_mixture_is_what_it_always_was() -> None:
    order = mixed_order([3, 0, 5, 4], [4, 0, 3, 8], 7)
    assert order.at(np.arange(15)).tolist() == [9, 2, 8, 10, 0, 1, 11, 0, 10, 3, 9, 6, 11, 5, 8]
