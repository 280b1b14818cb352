"""Priorities of offline and online rows: whose they are, and weights that compare."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from datasets_cli import (
    ExperienceReplay,
    LazyTensorStorage,
    OfflineToOnline,
    PrioritizedSampler,
    PrioritizedSliceSampler,
    ReplayBuffer,
    SliceSampler,
    TensorDictReplayBuffer,
)
from datasets_cli.errors import Unsupported, UsageError
from datasets_cli.replay import PrioritySampler
from tests.replay.mixing.test_offline_to_online import buffer, rows
from tests.support.refusals import refused


def prioritized(num_rows: int, start: int, alpha: float, beta: float) -> TensorDictReplayBuffer:
    return buffer(num_rows, start, sampler=PrioritizedSampler(1000, alpha, beta))


def slow_weights(priorities: list[float], alpha: float, beta: float) -> list[float]:
    """Return ``(n * p)^-beta`` of each row, one after the other."""
    powers = [(priority + 1e-8) ** alpha for priority in priorities]
    return [(len(powers) * power / sum(powers)) ** -beta for power in powers]


@pytest.mark.parametrize("betas", [(1.0, 1.0), (0.4, 0.4), (0.3, 0.9), (0.0, 0.5)])
def test_weights_are_those_of_a_slow_computation(betas: tuple[float, float]) -> None:
    generator = np.random.default_rng(0)
    priorities = [generator.exponential(scale, 30).tolist() for scale in (5.0, 0.2)]
    both = OfflineToOnline(
        prioritized(30, 0, 0.7, betas[0]), prioritized(30, 500, 0.5, betas[1]), fraction=0.5
    )
    for member, values in zip((both.offline, both.online), priorities, strict=True):
        member.update_priority(torch.arange(30), values)
    slow = [slow_weights(priorities[0], 0.7, betas[0]), slow_weights(priorities[1], 0.5, betas[1])]
    batch = both.sample(200)
    expected = [
        slow[member][row] / max(map(max, slow))
        for member, row in zip(
            *(batch["index", key] for key in ("buffer_ids", "index")), strict=True
        )
    ]
    assert np.allclose(batch["priority_weight"], expected, rtol=1e-5)


def test_weights_leave_the_fraction_as_it_was_chosen() -> None:
    """Weighed by the greatest weight of each part alone, the even part would count for more."""
    both = OfflineToOnline(
        prioritized(50, 0, 1.0, 1.0), prioritized(50, 500, 1.0, 1.0), fraction=0.5, seed=0
    )
    both.offline.update_priority(torch.arange(50), torch.arange(50) ** 2 + 1.0)  # uneven
    batch = both.sample(40_000)
    weight, is_online = batch["priority_weight"], batch["index", "buffer_ids"] == 1
    assert float(weight[~is_online].mean()) == pytest.approx(
        float(weight[is_online].mean()), rel=0.1
    )


def test_rows_that_are_drawn_uniformly_have_the_weight_of_the_mean() -> None:
    both = OfflineToOnline(buffer(20), prioritized(10, 500, 1.0, 1.0), fraction=0.5)
    both.online.update_priority(torch.arange(10), torch.arange(1.0, 11.0))
    batch, info = both.sample(40, return_info=True)
    slow = slow_weights([float(number) for number in range(1, 11)], 1.0, 1.0)
    assert torch.allclose(batch["priority_weight"][:20], torch.tensor(1 / max(slow)))
    expected = [slow[row] / max(slow) for row in batch["index", "index"][20:]]
    assert np.allclose(batch["priority_weight"][20:], expected, rtol=1e-5)
    assert torch.equal(info["priority_weight"], batch["priority_weight"])


def test_every_batch_has_weights_where_one_part_has_priorities() -> None:
    both = OfflineToOnline(buffer(20), prioritized(0, 500, 1.0, 1.0), fraction=0.9, seed=0)
    found = [both.sample(2)]
    both.extend(rows(range(500, 510)))
    found += [both.sample(2) for _ in range(9)]  # most of these have no online row
    assert sum(int(batch["index", "buffer_ids"].sum()) for batch in found) == 2
    assert all(batch["priority_weight"].tolist() == [1, 1] for batch in found)


def test_weights_of_slices_compare_too() -> None:
    def cut(start: int, sampler: Any) -> TensorDictReplayBuffer:
        made = buffer(0, sampler=sampler)
        ends = torch.arange(9) % 3 == 2  # three trajectories of 3, two rows of each begin a slice
        made.extend(rows(range(start, start + 9)).set(("next", "done"), ends.unsqueeze(-1)))
        return made

    both = OfflineToOnline(
        cut(0, PrioritizedSliceSampler(1000, 1.0, 1.0, slice_len=2)),
        cut(500, SliceSampler(slice_len=2)),
    )
    priorities = torch.arange(1.0, 10.0)
    both.offline.update_priority(torch.arange(9), priorities)
    first = both.sample(40).reshape(-1, 2)[:, 0]
    begins = [row for row in range(9) if row % 3 < 2]
    weights = slow_weights([float(priorities[row]) for row in begins], 1.0, 1.0)
    slow = dict(zip(begins, weights, strict=True))
    expected = [
        (slow[int(row)] if member == 0 else 1.0) / max(*slow.values(), 1.0)
        for member, row in zip(
            *(first["index", key] for key in ("buffer_ids", "index")), strict=True
        )
    ]
    assert np.allclose(first["priority_weight"], expected, rtol=1e-5)


def test_batches_before_online_rows_are_drawn_have_the_weights_of_the_offline_sampler() -> None:
    made = [prioritized(10, start, 1.0, 0.5) for start in (0, 500)]
    both = OfflineToOnline(*made, min_online=11)
    both.offline.update_priority(torch.arange(10), torch.arange(1.0, 11.0))
    both.online.update_priority(torch.arange(10), torch.arange(10) ** 4 + 1.0)  # more uneven
    batch = both.sample(20)
    expected = (batch["number"] + 1.0) ** -0.5
    assert torch.allclose(batch["priority_weight"], expected)


@pytest.mark.parametrize("name", ["torch", "numpy", "jax"])
def test_priorities_go_back_to_both(name: str) -> None:
    both = OfflineToOnline(
        prioritized(10, 0, 1, 1), prioritized(10, 500, 1, 1), batch_size=400, seed=0
    )
    found = both.with_format(name, cast=name == "jax")
    batch = found.sample()
    batch["td_error"] = ((batch["number"] == 3) | (batch["number"] == 507)) * 1.0
    found.update_tensordict_priority(batch)
    assert set(both.sample(200)["number"].tolist()) == {3, 507}
    with refused(UsageError, argument="index", found="int"):
        both.update_priority(3, 1.0)  # type: ignore[arg-type]


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 5), st.floats(0, 9, width=32)), min_size=1)
)
def test_each_row_has_the_last_priority_that_it_was_given(
    given_rows: list[tuple[int, int, float]],
) -> None:
    both = OfflineToOnline(prioritized(6, 0, 1, 1), prioritized(6, 500, 1, 1))
    ids, index, priority = (torch.tensor(part) for part in zip(*given_rows, strict=True))
    both.update_priority({"buffer_ids": ids, "index": index}, priority)
    slow = {(member, row): value for member, row, value in given_rows}
    for member, each in enumerate((both.offline, both.online)):
        known = each.sampler.state_dict()["priorities"]
        assert known.tolist() == [slow.get((member, row), 1.0) for row in range(6)]


def test_one_priority_is_for_all_rows_of_an_index() -> None:
    both = OfflineToOnline(prioritized(4, 0, 1, 1), prioritized(4, 500, 1, 1))
    index = {"buffer_ids": [0, 1, 1], "index": [2, 0, 3]}
    both.update_priority(index, 5.0)
    for member, raised in ((both.offline, [2]), (both.online, [0, 3])):
        known = member.sampler.state_dict()["priorities"]
        assert (known == 5).nonzero().flatten().tolist() == raised


def test_a_dataset_has_priorities_beside_rows_of_several_dimensions(door: str) -> None:
    replay = ExperienceReplay(door, sampler=PrioritizedSampler(10_000, 1.0, 1.0))
    storage = LazyTensorStorage(100, ndim=2)
    online = TensorDictReplayBuffer(storage=storage, sampler=PrioritizedSampler(100, 1.0, 1.0))
    online.extend(replay[:40].reshape(2, 20))
    both = OfflineToOnline(replay, online, batch_size=400, seed=0)
    batch = both.sample()
    batch["td_error"] = (batch["index", "index"] == 7) * 1.0
    both.update_tensordict_priority(batch)
    known = online.sampler.state_dict()["priorities"]
    drawn = batch["index", "index"][batch["index", "buffer_ids"] == 1].unique()
    assert torch.equal(known[drawn], (drawn == 7) * 1.0) and 7 in drawn


def test_weights_in_the_info_alone_are_made_comparable() -> None:
    made = [ReplayBuffer(storage=LazyTensorStorage(9), sampler=PrioritizedSampler(9, 1.0, 1.0))]
    made.append(ReplayBuffer(storage=LazyTensorStorage(9)))
    for each in made:
        each.extend(rows(range(9)))
    made[0].update_priority(torch.arange(9), torch.arange(1.0, 10.0))
    batch, info = OfflineToOnline(made[1], made[0]).sample(20, return_info=True)
    slow = slow_weights([float(number) for number in range(1, 10)], 1.0, 1.0)
    expected = [slow[row] / max(slow) for row in info["index", "index"][10:]]
    assert "priority_weight" not in batch
    assert np.allclose(info["priority_weight"][10:], expected, rtol=1e-5)


def test_weights_of_a_sampler_that_does_not_say_what_they_were_divided_by_are_refused() -> None:
    class Weighed(PrioritySampler):
        def sample(self, storage: Any, batch_size: int, generator: Any) -> Any:
            return torch.zeros(batch_size, dtype=torch.int64), {
                ("priority_weight",): torch.ones(batch_size)
            }

        def update_priority(self, index: Any, priority: Any) -> None:
            return

    both = OfflineToOnline(buffer(5, sampler=Weighed()), buffer(5))
    with refused(Unsupported, found="Weighed"):
        both.sample(4)
