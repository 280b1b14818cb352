"""Sum trees against sums and searches written out, for numpy's and torch's alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets_cli.replay.draws.sum_tree import DeviceSumTree, SumTree

CPU = torch.device("cpu")
KINDS = {"numpy": SumTree, "torch": lambda capacity: DeviceSumTree(capacity, CPU)}
CAPACITIES = [1, 2, 3, 7, 1024, 1025, 5000]


def filled(kind: str, weights: np.ndarray) -> Any:
    tree = KINDS[kind](len(weights))
    tree.set_run(0, tree.array(torch.from_numpy(weights)))
    return tree


def scan(tree: Any, mass: np.ndarray) -> np.ndarray:
    return tree.tensor(tree.scan(tree.array(torch.from_numpy(mass)))).numpy()


def slow_scan(weights: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """The first leaf whose running sum, exact for whole numbers, is above the mass."""
    return np.searchsorted(weights.cumsum(), mass, side="right")


@pytest.mark.parametrize("kind", KINDS)
def test_a_scan_finds_the_leaf_under_a_mass(kind: str) -> None:
    for capacity in CAPACITIES:
        rng = np.random.default_rng(capacity)
        weights = rng.integers(0, 5, capacity).astype(float)
        weights[-1] += 1
        for batch in (1, 40, 3000):  # by the table and without it
            mass = rng.uniform(0, weights.sum(), batch)
            assert np.array_equal(scan(filled(kind, weights), mass), slow_scan(weights, mass))


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
        assert np.array_equal(
            np.asarray(tree.weights(tree.array(torch.from_numpy(leaf)))), weights[leaf]
        )
        if weights.any():
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
    mass = np.linspace(0, weights.sum(), 999, endpoint=False)
    assert tree.total == weights.sum()
    assert np.array_equal(scan(tree, mass), slow_scan(weights, mass))


@pytest.mark.parametrize("batch", [9, 3000])
@pytest.mark.parametrize("kind", KINDS)
def test_no_mass_falls_on_a_leaf_without_weight(kind: str, batch: int) -> None:
    """Named defect: TorchRL's scan returns rows that are empty or out of range (rl#2230)."""
    weights = np.zeros(3000)
    weights[5:2900:7] = np.random.default_rng(0).random(414) * 10.0 ** np.arange(414).clip(max=12)
    tree = filled(kind, weights)
    beyond = np.full(batch, np.nextafter(tree.total, np.inf))  # as a sum that rounds up would be
    beyond[0] = 0.0
    found = scan(tree, beyond)
    assert (weights[found] > 0).all()
    assert found[0] == 5
    assert found[-1] == 5 + 413 * 7
