"""Prioritised draws against the formula written out; each TorchRL defect by name."""

from __future__ import annotations

import math
import pickle
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
    ReplayBuffer,
    TensorStorage,
)
from datasets_cli.errors import EmptyBuffer, OutOfRange, UsageError, WrongRows
from datasets_cli.replay.samplers import priorities
from datasets_cli.replay.samplers.sum_tree import RunningSums
from datasets_cli.torchrl import TensorDictPrioritizedReplayBuffer
from tests.support.trajectory_rows import TrajectoryRows

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


@settings(max_examples=60)
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


def test_the_sign_of_a_priority_does_not_matter() -> None:
    """Named defect: a negative priority becomes NaN in TorchRL's tree."""
    sampler = PrioritizedSampler(2, 1.0, 1.0)
    sampler.update_priority([0, 1], [-3.0, 1.0])
    assert abs(drawn_share(sampler, 2)[0] - 0.75) < 0.01


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_priority_that_is_not_finite_is_rejected_and_changes_nothing(bad: float) -> None:
    sampler = PrioritizedSampler(3, 1.0, 1.0)
    sampler.update_priority([0, 1, 2], [1.0, 2.0, 3.0])
    for priority in (bad, [1.0, bad], [[1.0, 2.0], [bad, 1.0]]):
        with pytest.raises(UsageError) as error:
            sampler.update_priority([0, 1], priority)
        assert error.value.argument == "priority"
    assert sampler.draw.priorities.known.tolist() == [1.0, 2.0, 3.0]


def test_a_storage_that_was_filled_before_is_drawn_from() -> None:
    """Named defect: TorchRL's prioritised buffer cannot begin with data (pytorch/rl#3120)."""
    sampler = PrioritizedSampler(10, 0.7, 0.5)
    index, info = sampler.sample(storage(6), 1000, seeded())
    assert set(index.tolist()) == set(range(6))
    assert (info[WEIGHT] == 1).all()


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
    with pytest.raises(kind) as error:
        PrioritizedSampler(5, 1.0, 1.0).update_priority(index, priority)
    assert error.value.found == found


@pytest.mark.parametrize("words", [np.array(["high", "low"]), [None, 1.0], "high", [[1.0], 2.0]])
def test_a_buffer_rejects_priorities_that_are_not_numbers(words: Any) -> None:
    sampler = PrioritizedSampler(2, 1.0, 1.0)
    buffer = ReplayBuffer(storage=TensorStorage(torch.arange(2)), sampler=sampler)
    for index, priority in [([0, 1], words), (words, 1.0)]:
        with pytest.raises(UsageError) as error:
            buffer.update_priority(index, priority)
        assert error.value.expected == "numbers"


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
    with pytest.raises(UsageError) as error:
        sampler.alpha = -0.5
    assert (error.value.argument, error.value.found) == ("alpha", -0.5)


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
    with pytest.raises(EmptyBuffer) as error:
        sampler.sample(storage(2), 4, seeded())
    assert error.value.found == 0.0


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


def test_the_running_sums_of_a_device_draw_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    right = busy_sampler().sample(storage(40), 500, seeded())
    on_device = lambda capacity: RunningSums(capacity, torch.device("cpu"))  # noqa: E731
    monkeypatch.setattr(priorities, "SumTree", on_device)
    index, info = busy_sampler().sample(storage(40), 500, seeded())
    assert torch.equal(index, right[0])
    assert torch.equal(info[WEIGHT], right[1][WEIGHT])


def test_a_storage_of_two_dimensions_that_grows_keeps_the_priorities() -> None:
    storage = LazyTensorStorage(10, ndim=2)
    sampler = PrioritizedSampler(10, 1.0, 1.0, eps=0.0)
    buffer = ReplayBuffer(storage=storage, sampler=sampler, batch_size=4)
    steps = TensorDict({"x": torch.zeros(3, 2)}, [3, 2])
    buffer.extend(steps)
    sampler.update_priority(torch.arange(6), torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
    buffer.extend(steps)  # 10 are rounded up to 12 rows of 3 lanes
    assert len(storage) == 12
    known = sampler.state_dict()["priorities"]
    assert known.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0] + [6.0] * 6


def test_priorities_of_more_rows_than_were_asked_for_are_loaded(tmp_path: Path) -> None:
    samplers = [PrioritizedSampler(200, 1.0, 1.0, eps=0.0) for _ in range(2)]
    for sampler in samplers:  # 200 are rounded up to 201 rows of 3 lanes
        storage = LazyTensorStorage(200, ndim=2)
        buffer = ReplayBuffer(storage=storage, sampler=sampler, batch_size=4)
        buffer.extend(TensorDict({"x": torch.zeros(3, 67)}, [3, 67]))
    samplers[0].update_priority(torch.arange(201), torch.arange(201.0))
    samplers[0].dumps(tmp_path)
    samplers[1].loads(tmp_path)
    assert samplers[1].state_dict()["priorities"].tolist() == [*range(201)]
