"""Items of several members in one random order, of each as many as are wanted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from datasets_cli.replay.draws.orders import Order, permutation, random_words


def mixed_order(lengths: Sequence[int], counts: Sequence[int], key: int) -> Order:
    """Return a random order of some items of each member: all of them, a part, or several times.

        members of 2 and 5 items     a0 a1   b0 b1 b2 b3 b4
        drawn: 2 and 3               a0 a1   b4 b1 b3          places 0 1   2 3 4, by member
        the order                    b4 a1 b3 a0 b1

    Of two items of a member one is there at most once more than the other. Every place costs the
    same, as in the permutations that this is made of.
    """
    whole_key, *keys = random_words(key, 1 + len(lengths)).tolist()
    whole = permutation(sum(counts), whole_key)
    num_items, ends = np.array(lengths), np.cumsum(counts)
    item_begins = np.cumsum(num_items) - num_items
    place_begins = ends - np.array(counts)
    # Which items are drawn once more than the others; where none is, any order will do.
    of_members: dict[int, Order] = {
        member: permutation(length, member_key)
        for member, (length, count, member_key) in enumerate(
            zip(lengths, counts, keys, strict=True)
        )
        if length and count % length
    }

    def at(places: np.ndarray) -> np.ndarray:
        mixed = whole.at(places)
        member = bounds_reached(mixed, ends[:-1])
        # The number of the place among those of its member, which passes over its items again.
        number = mixed - place_begins.take(member)
        number %= num_items.take(member)
        for which, order in of_members.items():
            here = np.flatnonzero(member == which)
            number[here] = order.at(number[here])
        items: np.ndarray = number + item_begins.take(member)
        return items

    return Order(len(whole), at)


FEW_BOUNDS = 32
"""Up to these, comparing with all of them takes a fifth of the time of a binary search, of which a
processor guesses half of the branches wrongly."""


def bounds_reached(values: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Return how many bounds are not above each value, whole numbers ``[B]`` of a small type."""
    # values: `[B]`.
    # bounds: in ascending order, `[n]`.
    if len(bounds) <= FEW_BOUNDS:
        reached: np.ndarray = (values >= bounds[:, None]).sum(0, dtype=np.uint8)
        return reached
    # The smallest type, so that sorting by it is a radix sort where it can be.
    return bounds.searchsorted(values, side="right").astype(np.min_scalar_type(len(bounds)))
