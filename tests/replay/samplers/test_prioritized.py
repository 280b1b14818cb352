"""Priorities: of rows, of slices, on devices, and the tree that sums them."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict

from datasets_cli import (
    LazyTensorStorage,
    ListStorage,
    PrioritizedSampler,
    PrioritizedSliceSampler,
    ReplayBuffer,
    TensorStorage,
)
from datasets_cli.errors import EmptyBuffer, OutOfRange, UsageError, WrongRows, WrongSize
from datasets_cli.replay.samplers.sum_tree import RunningSums, SumTree
from datasets_cli.torchrl import TensorDictPrioritizedReplayBuffer
from tests.support.refusals import refused
from tests.support.stand_in_device import DEVICE, StandInDevice
from tests.support.trajectory_rows import TrajectoryRows

# Prioritised draws against the formula written out; each TorchRL defect by name.


WEIGHT = ("priority_weight",)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def storage(num_rows: int) -> Any:
    return TrajectoryRows([num_rows] if num_rows else [])


def weights_of(priority: np.ndarray, alpha: float, eps: float) -> np.ndarray:
    """Schaul et al.'s formula, written out."""
    return np.array([(abs(p) + eps) ** alpha for p in priority.tolist()])


def drawn_share(sampler: PrioritizedSampler, num_rows: int, draws: int = 40_000) -> np.ndarray:
    index, _ = sampler.sample(storage(num_rows), draws, seeded())
    return np.bincount(index.numpy(), minlength=num_rows) / draws


@settings(max_examples=25)
@given(
    priority=st.lists(st.floats(-10, 10, width=32), min_size=1, max_size=50),
    alpha=st.sampled_from([0.0, 0.6, 1.0, 1.7]),
    beta=st.sampled_from([0.0, 0.4, 1.0]),
    eps=st.sampled_from([1e-8, 0.1]),
)
def test_rows_and_weights_are_those_of_the_formula(
    priority: list[float], alpha: float, beta: float, eps: float
) -> None:
    count = len(priority)
    sampler = PrioritizedSampler(64, alpha, beta, eps, dtype=torch.double)
    sampler.update_priority(torch.arange(count), torch.tensor(priority))
    index, info = sampler.sample(storage(count), 200, seeded())

    right = weights_of(np.float32(priority), alpha, eps)
    chance = torch.rand(200, dtype=torch.float64, generator=seeded()).numpy() * right.sum()
    running = right.cumsum()
    slack = 1e-9 * running[-1]  # sums in another order may differ in their last bits
    rows = index.numpy()
    assert (chance < running[rows] + slack).all()
    assert (chance >= running[rows] - right[rows] - slack).all()
    np.testing.assert_allclose(info[WEIGHT], (right[rows] / right.min()) ** -beta, rtol=1e-9)


def test_the_torch_seed_gives_the_draws() -> None:
    """Named defect: TorchRL draws from numpy's global generator; torch.manual_seed has no say."""
    sampler = PrioritizedSampler(1000, 0.6, 0.4)
    torch.manual_seed(3)
    first, _ = sampler.sample(storage(1000), 64, torch.default_generator)
    torch.manual_seed(3)
    np.random.seed(1)
    second, _ = sampler.sample(storage(1000), 64, torch.default_generator)
    assert torch.equal(first, second)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_priority_that_is_not_finite_is_rejected_and_changes_nothing(bad: float) -> None:
    sampler = PrioritizedSampler(3, 1.0, 1.0)
    sampler.update_priority([0, 1, 2], [1.0, 2.0, 3.0])
    for priority in (bad, [1.0, bad], [[1.0, 2.0], [bad, 1.0]]):
        with refused(UsageError, argument="priority"):
            sampler.update_priority([0, 1], priority)
    assert sampler.draw.priorities.known.tolist() == [1.0, 2.0, 3.0]


def test_a_row_number_of_minus_one_is_passed_over() -> None:
    sampler = PrioritizedSampler(4, 1.0, 1.0)
    sampler.update_priority([-1, 2, 0, -1], [9.0, 2.0, 1.0, 9.0])
    sampler.update_priority([-1], 9.0)
    sampler.on_write(torch.tensor([-1]))
    assert sampler.draw.priorities.known.tolist() == [1.0, -1.0, 2.0]
    assert sampler.default_priority == 2.0


def test_a_new_row_gets_the_highest_priority_transformed_once() -> None:
    """Named defect: it used to be transformed twice, which drew new rows rarely (rl#3925)."""
    sampler = PrioritizedSampler(10, 0.5, 1.0)
    assert sampler.default_priority == sampler.draw.max_weight == 1.0
    sampler.update_priority([0, 1], [16.0, 4.0])
    sampler.update_priority([0], [4.0])
    sampler.on_write(torch.tensor([2]))
    assert sampler.default_priority == 16.0  # the highest that ever was
    assert np.abs(drawn_share(sampler, 3) - [0.25, 0.25, 0.5]).max() < 0.01


def test_a_new_row_gets_the_highest_priority_also_where_that_is_below_one() -> None:
    sampler = PrioritizedSampler(10, 1.0, 1.0, eps=0.0)
    sampler.update_priority([0, 1], [0.25, 0.5])
    sampler.on_write(torch.tensor([2]))
    assert sampler.draw.priorities.known.tolist() == [0.25, 0.5, 0.5]


def test_the_highest_priority_within_the_buffer_goes_with_its_row() -> None:
    sampler = PrioritizedSampler(3, 1.0, 1.0, max_priority_within_buffer=True)
    sampler.update_priority([0, 1, 2], [8.0, 2.0, 3.0])
    sampler.on_write(torch.tensor([0]))
    assert sampler.draw.priorities.known.tolist() == [3.0, 2.0, 3.0]
    sampler.on_write(torch.arange(3))
    assert sampler.default_priority == 1.0


@pytest.mark.parametrize(
    ("index", "priority", "kind", "found"),
    [
        ([0, 1, 2], [1.0, 2.0], WrongRows, [2]),
        ([0.0, 1.0], 1.0, WrongRows, torch.float32),
        ([0, 5], 1.0, OutOfRange, 5),
        ([0, -2], 1.0, OutOfRange, -2),
        ([0, 1], np.ones(2, complex), UsageError, torch.complex128),
    ],
)
def test_priorities_that_do_not_fit_are_refused(
    index: Any, priority: Any, kind: type[UsageError], found: Any
) -> None:
    with refused(kind, found=found):
        PrioritizedSampler(5, 1.0, 1.0).update_priority(index, priority)


@pytest.mark.parametrize("count", [1, 2])
def test_several_numbers_of_each_row_are_reduced(count: int) -> None:
    sampler = PrioritizedSampler(5, 1.0, 1.0)
    sampler.update_priority([*range(count)], [[1.0, 3.0, -2.0]] * count)
    assert sampler.draw.priorities.known.tolist() == [3.0] * count


@pytest.mark.parametrize("words", [np.array(["high", "low"]), [None, 1.0], "high", [[1.0], 2.0]])
def test_a_buffer_rejects_priorities_that_are_not_numbers(words: Any) -> None:
    sampler = PrioritizedSampler(2, 1.0, 1.0)
    buffer = ReplayBuffer(storage=TensorStorage(torch.arange(2)), sampler=sampler)
    for index, priority in [([0, 1], words), (words, 1.0)]:
        with refused(UsageError, expected="numbers"):
            buffer.update_priority(index, priority)


@pytest.mark.parametrize(
    "arguments",
    [
        {"max_capacity": 0},
        {"alpha": -1.0},
        {"beta": math.nan},
        {"eps": -1.0},
        {"reduction": "sum"},
        {"dtype": torch.int64},
    ],
)
def test_arguments_that_are_out_of_range_are_refused(arguments: Any) -> None:
    with pytest.raises(UsageError) as error:
        PrioritizedSampler(**{"max_capacity": 5, "alpha": 1.0, "beta": 1.0} | arguments)
    assert [error.value.argument] == [*arguments]


def test_alpha_and_beta_can_be_changed_also_from_zero() -> None:
    """Named defect: TorchRL cannot get the priorities back after an alpha of 0."""
    sampler = PrioritizedSampler(2, 0.0, 0.0)
    sampler.update_priority([0, 1], [2.0, 6.0])
    assert abs(drawn_share(sampler, 2)[1] - 0.5) < 0.01
    sampler.alpha, sampler.beta = 1.0, 1.0
    assert abs(drawn_share(sampler, 2)[1] - 0.75) < 0.01
    index, info = sampler.sample(storage(2), 50, seeded())
    assert torch.allclose(info[WEIGHT], torch.where(index == 0, 1.0, 1 / 3))
    with refused(UsageError, argument="alpha", found=-0.5):
        sampler.alpha = -0.5


def test_rows_beyond_the_storage_are_never_drawn() -> None:
    sampler = PrioritizedSampler(100, 1.0, 1.0)
    sampler.update_priority(torch.arange(100), 1000.0)
    assert int(sampler.sample(storage(7), 1000, seeded())[0].max()) == 6
    sampler.on_clear()
    sampler.on_write(torch.arange(3))
    assert int(sampler.sample(storage(3), 1000, seeded())[0].max()) == 2


def test_nothing_to_draw_is_refused() -> None:
    with pytest.raises(EmptyBuffer):
        PrioritizedSampler(5, 1.0, 1.0).sample(storage(0), 4, seeded())
    sampler = PrioritizedSampler(2, 1.0, 1.0, eps=0.0)
    sampler.update_priority([0, 1], 0.0)
    with refused(EmptyBuffer, found=0.0):
        sampler.sample(storage(2), 4, seeded())


@pytest.mark.parametrize("kind", [LazyTensorStorage, ListStorage, None])
def test_a_sampler_grows_with_the_storage_and_draws_as_a_larger_one(kind: Any) -> None:
    drawn = []
    for capacity in (2, 100):
        sampler = PrioritizedSampler(capacity, 0.7, 0.5)
        rows: Any = TensorStorage(torch.arange(9)) if kind is None else kind(20)
        buffer = ReplayBuffer(storage=rows, sampler=sampler, seed=0)
        if kind is not None:
            buffer.extend(torch.arange(9))
        buffer.update_priority(torch.tensor([8, 3]), torch.tensor([4.0, 0.5]))
        drawn.append(buffer.sample(200, return_info=True))
        assert sampler.max_capacity == max(9, capacity)
    (rows, info), (right, right_info) = drawn
    assert torch.equal(torch.as_tensor(rows), torch.as_tensor(right))
    assert torch.equal(info["priority_weight"], right_info["priority_weight"])


def test_priorities_of_a_list_without_a_limit_grow_with_it() -> None:
    buffer = TensorDictPrioritizedReplayBuffer(
        alpha=1.0, beta=1.0, eps=0.0, storage=ListStorage(), batch_size=3
    )
    for start in (0, 40):
        number = torch.arange(start, start + 40)
        buffer.extend(TensorDict({"a": number, "td_error": number + 1.0}, [40]))
    assert buffer.sampler.draw.priorities.known.tolist() == [*map(float, range(1, 81))]  # type: ignore[attr-defined]
    assert buffer.sample().shape == (3,)


def busy_sampler() -> PrioritizedSampler:
    sampler = PrioritizedSampler(50, 0.7, 0.4)
    sampler.on_write(torch.arange(40))
    sampler.update_priority(torch.arange(30), torch.rand(30, generator=seeded()))
    return sampler


def test_a_state_a_dump_and_a_pickle_go_on_with_the_same_draws(tmp_path: Path) -> None:
    sampler, by_state, by_dump = busy_sampler(), *(PrioritizedSampler(n, 1, 1) for n in (7, 99))
    by_state.load_state_dict(sampler.state_dict())
    sampler.dumps(tmp_path / "new" / "folder")
    by_dump.loads(tmp_path / "new" / "folder")
    right = sampler.sample(storage(40), 500, seeded())
    for other in (by_state, by_dump, pickle.loads(pickle.dumps(sampler))):
        index, info = other.sample(storage(40), 500, seeded())
        assert torch.equal(index, right[0])
        assert torch.equal(info[WEIGHT], right[1][WEIGHT])
        assert other.default_priority == sampler.default_priority
        other.update_priority(torch.arange(40), 0.3)
        assert (other.sample(storage(40), 500, seeded())[1][WEIGHT] == 1).all()


def test_a_dump_holds_the_rows_alone_and_can_be_empty(tmp_path: Path) -> None:
    """Named defects: TorchRL dumps its capacity, in a loop, and fails before the first update."""
    PrioritizedSampler(1_000_000, 1, 1).dumps(tmp_path)
    assert (tmp_path / "priorities.pt").stat().st_size < 5000
    other = PrioritizedSampler(1_000_000, 0.5, 1)
    other.loads(tmp_path)
    assert (other.alpha, other.default_priority) == (1.0, 1.0)


# Prioritised slices: never across a boundary, first rows in proportion to their priority.


LAST = ("next", "truncated")


def sampler_of(capacity: int, **arguments: Any) -> PrioritizedSliceSampler:
    return PrioritizedSliceSampler(capacity, 1.0, 1.0, 0.0, torch.double, **arguments)


def slices_of(index: torch.Tensor, last: torch.Tensor) -> list[list[int]]:
    """Cut a batch behind each row that is marked as the last of a slice."""
    cuts = last.view(-1).nonzero().view(-1) + 1
    return [part.tolist() for part in index.tensor_split(cuts) if len(part)]


@settings(max_examples=25)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=9),
    slice_len=st.integers(1, 8),
    strict=st.booleans(),
    seed=st.integers(0, 99),
)
def test_a_slice_lies_within_one_trajectory(
    lengths: list[int], slice_len: int, strict: bool, seed: int
) -> None:
    """Named defect: TorchRL's slices crossed trajectories (pytorch/rl#2208)."""
    rows = TrajectoryRows(lengths)
    if strict and max(lengths) < slice_len:
        return
    sampler = sampler_of(len(rows), slice_len=slice_len, strict_length=strict)
    sampler.update_priority(torch.arange(len(rows)), torch.rand(len(rows), generator=seeded(seed)))
    index, info = sampler.sample(rows, 20 * slice_len, seeded(seed))
    episode = np.repeat(np.arange(len(lengths)), lengths)
    found = slices_of(index, info[LAST])
    assert len(found) == 20
    for part in found:
        first, owner = part[0], episode[part[0]]
        assert part == list(range(first, first + len(part)))
        assert (episode[part] == owner).all()
        short = not strict and lengths[owner] < slice_len
        assert len(part) == (lengths[owner] if short else slice_len)


def test_weights_compare_the_rows_that_can_be_first() -> None:
    """Named defect: TorchRL takes the least over all rows, also those never drawn."""
    sampler = sampler_of(5, num_slices=8)
    sampler.update_priority(torch.arange(5), torch.tensor([4.0, 2.0, 8.0, 0.01, 0.01]))
    index, info = sampler.sample(TrajectoryRows([5]), 24, seeded())
    first = index.view(8, 3)[:, :1].expand(8, 3).reshape(-1)
    right = torch.tensor([0.5, 1.0, 0.25], dtype=torch.double)[first]
    assert torch.equal(info[WEIGHT], right)


def test_writing_moves_the_boundaries() -> None:
    rows = TrajectoryRows([4, 4])
    sampler = sampler_of(8, slice_len=4)
    assert set(sampler.sample(rows, 80, seeded())[0].view(-1, 4)[:, 0].tolist()) == {0, 4}
    rows.offsets = torch.tensor([0, 2, 8])  # rows 2 and 3 were overwritten by another trajectory
    rows.revision += 1
    sampler.on_write(torch.tensor([2, 3]))
    assert set(sampler.sample(rows, 80, seeded())[0].view(-1, 4)[:, 0].tolist()) == {2, 3, 4}
    sampler.on_clear()
    rows.offsets = torch.tensor([0, 4])
    rows.revision += 1
    sampler.on_write(torch.arange(4))
    assert set(sampler.sample(rows, 80, seeded())[0].view(-1, 4)[:, 0].tolist()) == {0}


def test_marks_can_be_left_out_and_too_long_slices_are_refused() -> None:
    _, info = sampler_of(4, slice_len=2, truncated_key=None).sample(
        TrajectoryRows([4]), 4, seeded()
    )
    assert info.keys() == {WEIGHT}
    with refused(WrongSize, expected="at most 4", found=5):
        sampler_of(4, slice_len=5).sample(TrajectoryRows([4]), 5, seeded())
    with refused(UsageError, argument="slice_len"):
        sampler_of(4)


def test_a_storage_that_was_filled_before_and_a_state_that_goes_on() -> None:
    rows, sampler, other = TrajectoryRows([9, 6]), *(sampler_of(15, slice_len=3) for _ in range(2))
    sampler.sample(rows, 3, seeded())
    sampler.update_priority(torch.arange(15), torch.arange(1.0, 16.0))
    other.load_state_dict(sampler.state_dict())
    right, _ = sampler.sample(rows, 300, seeded(1))
    assert torch.equal(other.sample(rows, 300, seeded(1))[0], right)


# Priorities on a device: how much it is asked to do, and that its draws are those of the CPU.


ROWS = TrajectoryRows([600, 400])


@pytest.fixture
def device() -> Iterator[StandInDevice]:
    with StandInDevice() as device:
        yield device


def filled(priority: torch.Tensor, **options: Any) -> PrioritizedSampler:
    sampler = PrioritizedSampler(1000, 0.7, 0.5, **options)
    sampler.update_priority(torch.arange(1000), priority)
    return sampler


def draw(sampler: PrioritizedSampler, count: int = 256) -> tuple[torch.Tensor, torch.Tensor]:
    rows, info = sampler.sample(ROWS, count, torch.Generator().manual_seed(0))  # type: ignore[arg-type]
    return rows, info[WEIGHT]


def test_a_training_step_takes_fifteen_operations_and_one_wait_for_each_half(
    device: StandInDevice,
) -> None:
    sampler = filled(torch.rand(1000), device=DEVICE)
    rows, _ = draw(sampler)
    loss = torch.rand(256).to(DEVICE)
    device.clear()
    sampler.update_priority(rows, loss)
    assert (len(device.operations) <= 15, len(device.waits), device.sent) == (True, 1, [])
    device.clear()
    draw(sampler)
    assert (len(device.operations) <= 15, len(device.waits)) == (True, 1)
    assert device.sent == [256 * 8]  # the chances; a generator on the device draws them there


def test_rows_and_weights_are_those_of_the_cpu(device: StandInDevice) -> None:
    priority = torch.rand(1000, dtype=torch.float64).round(decimals=1)
    rows, weights = draw(filled(priority, eps=0.0, dtype=torch.double, device=DEVICE), 5000)
    right, right_weights = draw(filled(priority, eps=0.0, dtype=torch.double), 5000)
    assert rows.device == DEVICE and (priority[right] > 0).all()
    assert torch.equal(rows.cpu(), right)
    torch.testing.assert_close(weights.cpu(), right_weights)


def test_of_equal_rows_the_last_counts(device: StandInDevice) -> None:
    sampler = filled(torch.zeros(()), eps=0.0, device=DEVICE)
    sampler.update_priority(torch.tensor([4, 9, 4, -1]), torch.tensor([1.0, 2.0, 0.0, 7.0]))
    assert set(draw(sampler)[0].cpu().tolist()) == {9}
    sampler.update_priority(torch.tensor([9]), 0.0)
    with pytest.raises(EmptyBuffer):
        draw(sampler)
    with refused(OutOfRange, row=-2):
        sampler.update_priority(torch.tensor([-2]), 1.0)


def test_slices_begin_where_there_is_room(device: StandInDevice) -> None:
    sampler = PrioritizedSliceSampler(1000, 0.7, 0.5, slice_len=500, device=DEVICE)
    sampler.update_priority(torch.arange(1000), torch.rand(1000))
    rows, _ = sampler.sample(ROWS, 2000, torch.Generator().manual_seed(0))  # type: ignore[arg-type]
    first = rows.cpu().view(4, 500)[:, 0]
    assert rows.device == DEVICE and (first <= 100).all()  # of 600 rows; 400 have no room


# Sum trees, and a device's running sums, against sums and searches written out.


CPU = torch.device("cpu")
KINDS = {"numpy": SumTree, "torch": lambda capacity: RunningSums(capacity, CPU)}
CAPACITIES = [1, 2, 3, 7, 1024, 1025, 5000]


def filled_tree(kind: str, weights: np.ndarray) -> Any:
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
            leaf, likelier = drawn(filled_tree(kind, weights), chance)
            assert np.array_equal(leaf, slow_scan(weights, chance * weights.sum()))
            assert np.array_equal(likelier, weights[leaf] / weights[weights > 0].min())


@settings(max_examples=25)
@given(st.data())
@pytest.mark.parametrize("kind", KINDS)
def test_sums_least_and_weights_stay_right_under_any_changes(kind: str, data: Any) -> None:
    capacity = data.draw(st.sampled_from(CAPACITIES))
    weights = np.zeros(capacity)
    tree = filled_tree(kind, weights)
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
    tree = filled_tree("numpy", np.full(8, 9.0))
    assert tree.least(8) == 9
    tree.set(np.array([2, 2]), np.array([1.0, 5.0]))
    assert tree.total == 7 * 9 + 5
    assert tree.least(8) == 5


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_of_leaves_is_set_as_one_by_one(kind: str) -> None:
    weights = np.arange(1.0, 2049.0)
    tree = filled_tree(kind, weights)
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
    tree = filled_tree("numpy", weights)
    beyond = np.full(batch, np.nextafter(tree.total, np.inf))  # as a sum that rounds up would be
    beyond[0] = 0.0
    leaf, found = tree.scan(beyond)
    assert (found > 0).all()
    assert np.array_equal(found, weights[leaf])
    assert leaf[0] == 5
    assert leaf[-1] == 5 + 413 * 7


def test_where_a_device_rounds_its_sums_apart_a_leaf_with_weight_stands_in() -> None:
    sums = filled_tree("torch", np.array([0.0, 3.0, 0.0, 2.0, 0.0]))
    sums._ends = torch.tensor([0.0, 3.0, 3.5, 5.0, 5.5], dtype=torch.float64)  # 2 and 4 have none
    leaf, likelier = drawn(sums, np.array([0.0, 3.2, 4.0, 5.2]) / 5.5)
    assert leaf.tolist() == [1, 3, 3, 3]
    assert likelier.tolist() == [1.5, 1.0, 1.0, 1.0]


def test_of_equal_leaves_a_device_gives_all_what_the_last_one_has() -> None:
    numbers, leaf = torch.zeros(5), torch.tensor([3, 1, 3, 0, 1, 3])
    given = RunningSums.put(numbers, leaf, torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
    assert given.tolist() == [6.0, 5.0, 6.0, 4.0, 5.0, 6.0]  # in whatever order they are written
    assert numbers.tolist() == [4.0, 5.0, 0.0, 6.0, 0.0]
