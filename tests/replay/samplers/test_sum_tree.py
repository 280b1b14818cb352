"""Sum trees, and a device's running sums, against sums and searches written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets_cli.replay.samplers.sum_tree import RunningSums, SumTree

CPU = torch.device("cpu")
KINDS = {"numpy": SumTree, "torch": lambda capacity: RunningSums(capacity, CPU)}
CAPACITIES = [1, 2, 3, 7, 1024, 1025, 5000]


def filled(kind: str, weights: np.ndarray) -> Any:
    tree = KINDS[kind](len(weights))
    tree.set_run(0, tree.array(torch.from_numpy(weights)))
    return tree


def drawn(tree: Any, chance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    leaf, likelier = tree.draw(torch.from_numpy(chance), tree.capacity, 1.0)
    return np.asarray(leaf), np.asarray(likelier)


def slow_scan(weights: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """The first leaf whose running sum, exact for whole numbers, is above the mass."""
    return np.searchsorted(weights.cumsum(), mass, side="right")


@pytest.mark.parametrize("kind", KINDS)
def test_the_leaf_under_a_mass_is_drawn(kind: str) -> None:
    for capacity in CAPACITIES:
        rng = np.random.default_rng(capacity)
        weights = rng.integers(0, 5, capacity).astype(float)
        weights[-1] += 1
        for batch in (1, 40, 3000):  # by the table and without it
            chance = rng.uniform(0, 1, batch)
            leaf, likelier = drawn(filled(kind, weights), chance)
            assert np.array_equal(leaf, slow_scan(weights, chance * weights.sum()))
            assert np.array_equal(likelier, weights[leaf] / weights[weights > 0].min())


@settings(max_examples=25)
@given(st.data())
@pytest.mark.parametrize("kind", KINDS)
def test_sums_least_and_weights_stay_right_under_any_changes(kind: str, data: Any) -> None:
    capacity = data.draw(st.sampled_from(CAPACITIES))
    weights = np.zeros(capacity)
    tree = filled(kind, weights)
    for _ in range(4):
        size = data.draw(st.sampled_from([1, 3, capacity]))
        rng = np.random.default_rng(data.draw(st.integers(0, 9)))
        leaf = rng.permutation(capacity)[:size]
        weights[leaf] = rng.integers(0, 4, len(leaf))
        tree.set(*(tree.array(torch.from_numpy(a)) for a in (leaf, weights[leaf])))
        assert tree.total == weights.sum()
        if weights.any():
            chance = rng.uniform(0, 1, 9)
            assert np.array_equal(drawn(tree, chance)[0], slow_scan(weights, chance * tree.total))
            assert tree.least(capacity) == weights[weights > 0].min()


def test_of_equal_leaves_the_last_counts_and_the_least_weight_knows_it() -> None:
    tree = filled("numpy", np.full(8, 9.0))
    assert tree.least(8) == 9
    tree.set(np.array([2, 2]), np.array([1.0, 5.0]))
    assert tree.total == 7 * 9 + 5
    assert tree.least(8) == 5


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_of_leaves_is_set_as_one_by_one(kind: str) -> None:
    weights = np.arange(1.0, 2049.0)
    tree = filled(kind, weights)
    tree.set_run(700, tree.array(torch.zeros(600, dtype=torch.float64)))
    weights[700:1300] = 0
    chance = np.linspace(0, 1, 999, endpoint=False)
    assert tree.total == weights.sum()
    assert np.array_equal(drawn(tree, chance)[0], slow_scan(weights, chance * weights.sum()))


@pytest.mark.parametrize("batch", [9, 3000])
def test_no_mass_falls_on_a_leaf_without_weight(batch: int) -> None:
    """Named defect: TorchRL's scan returns rows that are empty or out of range (rl#2230)."""
    weights = np.zeros(3000)
    weights[5:2900:7] = np.random.default_rng(0).random(414) * 10.0 ** np.arange(414).clip(max=12)
    tree = filled("numpy", weights)
    beyond = np.full(batch, np.nextafter(tree.total, np.inf))  # as a sum that rounds up would be
    beyond[0] = 0.0
    leaf, found = tree.scan(beyond)
    assert (found > 0).all()
    assert np.array_equal(found, weights[leaf])
    assert leaf[0] == 5
    assert leaf[-1] == 5 + 413 * 7


def test_where_a_device_rounds_its_sums_apart_a_leaf_with_weight_stands_in() -> None:
    sums = filled("torch", np.array([0.0, 3.0, 0.0, 2.0, 0.0]))
    sums._ends = torch.tensor([0.0, 3.0, 3.5, 5.0, 5.5], dtype=torch.float64)  # 2 and 4 have none
    leaf, likelier = drawn(sums, np.array([0.0, 3.2, 4.0, 5.2]) / 5.5)
    assert leaf.tolist() == [1, 3, 3, 3]
    assert likelier.tolist() == [1.5, 1.0, 1.0, 1.0]


def test_of_equal_leaves_a_device_gives_all_what_the_last_one_has() -> None:
    numbers, leaf = torch.zeros(5), torch.tensor([3, 1, 3, 0, 1, 3])
    given = RunningSums.put(numbers, leaf, torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
    assert given.tolist() == [6.0, 5.0, 6.0, 4.0, 5.0, 6.0]  # in whatever order they are written
    assert numbers.tolist() == [4.0, 5.0, 0.0, 6.0, 0.0]
