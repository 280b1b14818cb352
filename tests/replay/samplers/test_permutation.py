"""Random orders of any size: every item once, and nothing in them that chance does not explain."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets_cli.replay.samplers.orders import FeistelOrder, permutation, random_words
from tests.support.trajectory_rows import chi_square_score

MANY = 5000  # a Feistel network
KEYS = 500
ROUNDS = 4  # with another number every seed would give another order


def mixed(word: int) -> int:
    """SplitMix64's mixing, in whole numbers of Python."""
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) % 2**64
    return word ^ (word >> 31)


def split_mix(seed: int, count: int) -> list[int]:
    return [mixed((seed + number * 0x9E3779B97F4A7C15) % 2**64) for number in range(1, count + 1)]


def feistel(num_items: int, key: int) -> list[int]:
    """The order of a Feistel network, one item after the other."""
    bits = num_items.bit_length() // 2
    width, height = 2**bits, (num_items // 2**bits) // 2 * 2 + 2
    words = [word // 2**32 for word in split_mix(mixed(key % 2**64), ROUNDS * (width + height))]

    def permuted(cell: int) -> int:
        left, right = divmod(cell, width)
        for number in range(ROUNDS):
            left = (left + words[number * width + right] * height // 2**32) % height
            right ^= words[ROUNDS * width + number * height + left] % width
        cell = left * width + right
        return cell if cell < num_items else permuted(cell)

    return [permuted(place) for place in range(num_items)]


def whole(num_items: int, key: int) -> np.ndarray:
    return permutation(num_items, key).at(np.arange(num_items))


@cache
def many_orders() -> np.ndarray:
    """The orders ``[KEYS, MANY]`` of successive keys."""
    return np.stack([whole(MANY, key) for key in range(KEYS)])


def test_words_are_those_of_split_mix_64() -> None:
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert split_mix(1234567, 3) == published
    for key in (0, 1, -1, 2**64 - 1, 1234567):
        assert random_words(key, 5).tolist() == split_mix(mixed(key % 2**64), 5)


def test_an_order_is_that_of_a_plain_feistel_network() -> None:
    for num_items, key in [(1, 5), (2, 5), (63, 7), (64, 8), (100, -1), (4097, 2**63 - 1)]:
        order = FeistelOrder(num_items, key)
        assert order.at(np.arange(num_items)).tolist() == feistel(num_items, key)


def test_few_items_come_in_the_order_of_their_words() -> None:
    words = split_mix(mixed(3), 40)
    assert whole(40, 3).tolist() == sorted(range(40), key=words.__getitem__)


def test_every_item_of_few_comes_once_for_every_key() -> None:
    for num_items, key in itertools.product(range(1, 65), range(40)):
        assert len(permutation(num_items, key)) == num_items
        for order in (permutation(num_items, key), FeistelOrder(num_items, key)):
            assert sorted(order.at(np.arange(num_items))) == [*range(num_items)]


@settings(max_examples=60)
@given(num_items=st.integers(1, 60_000), key=st.integers(-(2**63), 2**64 - 1), data=st.data())
def test_every_item_comes_once_and_any_part_of_the_order_alone(
    num_items: int, key: int, data: st.DataObject
) -> None:
    order = whole(num_items, key)
    assert (np.bincount(order, minlength=num_items) == 1).all()
    places = st.lists(st.integers(0, num_items - 1), min_size=1, max_size=9)
    some = np.array(data.draw(places))
    assert (permutation(num_items, key).at(some) == order[some]).all()


def test_all_orders_of_three_and_four_items_are_equally_frequent() -> None:
    for num_items, num_orders in ((3, 6), (4, 24)):
        orders = [tuple(whole(num_items, key).tolist()) for key in range(6000)]
        counts = np.unique(orders, axis=0, return_counts=True)[1]
        assert len(counts) == num_orders
        assert abs(chi_square_score(counts, np.full(num_orders, 6000 / num_orders))) < 4


def test_of_many_items_each_comes_at_each_place_alike() -> None:
    orders = many_orders()
    for place in (0, 1, 63, 64, 2500, MANY - 1):
        for part in (orders[:, place] // 100, orders[:, place] % 50):  # rows, columns of a table
            counts = np.bincount(part, minlength=50)
            assert abs(chi_square_score(counts, np.full(50, KEYS / 50))) < 4


def test_items_at_near_places_differ_by_every_number_alike() -> None:
    orders = many_orders()
    for distance in (1, 64, 65):  # 64 is the width of the table
        between = (orders[:, distance:] - orders[:, :-distance]).reshape(-1) % MANY
        counts = np.bincount(between, minlength=MANY)
        assert counts[0] == 0
        assert abs(chi_square_score(counts[1:], np.full(MANY - 1, len(between) / (MANY - 1)))) < 4


def test_ascents_and_runs_are_as_frequent_as_by_chance() -> None:
    orders = many_orders()
    ascents = (np.diff(orders) > 0).sum(1)  # of mean (N - 1) / 2 and variance (N + 1) / 12
    variance = (MANY + 1) / 12
    assert abs(ascents.mean() - (MANY - 1) / 2) < 4 * (variance / KEYS) ** 0.5
    assert abs(ascents.var() / variance - 1) < 4 * (2 / KEYS) ** 0.5
    triples = orders[:, : MANY // 3 * 3].reshape(-1, 3).argsort(1) @ [9, 3, 1]
    counts = np.unique(triples, return_counts=True)[1]
    assert abs(chi_square_score(counts, np.full(6, len(triples) / 6))) < 4


def sign(order: np.ndarray) -> int:
    """1 for an odd permutation, 0 for an even one: N minus its cycles."""
    left, odd = order.tolist(), 0
    for start in range(len(left)):
        while (item := left[start]) != start:
            left[start], left[item] = left[item], item  # puts one item at its own place
            odd ^= 1
    return odd


def test_odd_and_even_orders_are_equally_frequent() -> None:
    for num_items in (4097, MANY, 2**13):
        odd = sum(sign(whole(num_items, key)) for key in range(100))
        assert 30 < odd < 70  # 4 standard deviations


def test_orders_of_near_keys_have_nothing_in_common() -> None:
    orders = many_orders()[:300]
    common = (orders[1:] == orders[:-1]).sum()  # about one place of two random orders
    assert abs(common - 299) < 4 * 299**0.5
    places = np.arange(MANY) - (MANY - 1) / 2
    slopes = orders @ places / (places @ places)
    assert abs(slopes.mean()) < 4 / (300 * MANY) ** 0.5
