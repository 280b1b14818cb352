"""HERReplayBuffer: TorchRL's arguments, and what TorchRL 0.14.1 does wrong with them.

Each test of a named defect shows it in TorchRL too, so that it fails once TorchRL fixes it.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli.errors import UnknownKey, Unsupported, UsageError
from tests.support.parity import ours, theirs
from tests.support.refusals import refused

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

FAR = -9.0
LIBRARIES = [theirs, ours]


def steps(lengths: list[int], first: int = 0) -> TensorDict:
    """Trajectories at TorchRL's keys; the step in row r goes from the number r to r + 1."""
    count = sum(lengths)
    number = torch.arange(first, first + count).float().unsqueeze(1)
    done = torch.zeros(count, 1, dtype=torch.bool)
    done[torch.tensor(lengths).cumsum(0) - 1] = True
    goal = torch.full((count, 1), FAR)
    following = {
        "achieved_goal": number + 1,
        "desired_goal": goal.clone(),
        "reward": torch.zeros(count, 1),
        "done": done,
        "terminated": done.clone(),
    }
    return TensorDict({"achieved_goal": number, "desired_goal": goal, "next": following}, [count])


def reward(batch: Any) -> torch.Tensor:
    reached = batch["next", "achieved_goal"] == batch["desired_goal"]
    return reached.float()


def buffer_of(library: Any, lengths: list[int] | None = None, size: int = 20, **more: Any) -> Any:
    known = {"her_ratio": 1.0, "batch_size": 64, "reward_fn": reward}
    if "storage" not in more:
        known["storage"] = library.LazyTensorStorage(size)
    buffer = library.HERReplayBuffer(**(known | more))
    if lengths is not None:
        buffer.extend(steps(lengths))
    return buffer


def goals(batch: Any) -> set[float]:
    return set(batch["desired_goal"].flatten().tolist())


@pytest.mark.parametrize("strategy", ["future", "final", "episode", "random"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_both_take_the_same_calls(library: Any, strategy: str) -> None:
    buffer = buffer_of(library, [4, 5], strategy=strategy, her_ratio=0.5)
    batch = buffer.sample()
    is_new = batch["desired_goal"] != FAR
    assert 0 < is_new.sum() < 64 and batch["next", "reward"].shape == (64, 1)
    assert torch.equal(batch["next", "desired_goal"], batch["desired_goal"])
    assert torch.equal(batch["next", "reward"], reward(batch))
    assert (buffer.her_ratio, buffer.strategy) == (0.5, strategy)
    assert buffer.goal_key == "desired_goal" and buffer.end_key == ("next", "done")


def test_the_ratio_may_be_set_and_another_sampler_keeps_the_goals() -> None:
    buffer = buffer_of(ours, [9], her_ratio=0, prefetch=2)
    assert goals(buffer.sample()) == {FAR}
    buffer.her_ratio = 1
    assert FAR not in goals(buffer.sample())
    buffer.set_sampler(ours.SamplerWithoutReplacement())
    assert FAR not in goals(buffer.sample(9)) and buffer.ran_out


def test_what_the_last_step_reached_can_be_a_goal() -> None:
    """Named defect: goals are what was achieved before a step, so never by the last one."""
    assert goals(buffer_of(theirs, [4], strategy="final").sample()) == {3.0}
    assert goals(buffer_of(ours, [4], strategy="final").sample()) == {4.0}


def test_goals_are_of_the_same_trajectory_in_a_full_ring_too() -> None:
    """Named defect: rows after the last end, which continue at row 0, get goals of others."""
    found = []
    for library in LIBRARIES:
        buffer = buffer_of(library, [3], size=6, strategy="final", batch_size=400)
        buffer.extend(steps([5], first=3))  # the step from 2 is the oldest, and of another one
        batch = buffer.sample()
        found.append(goals(batch[batch["achieved_goal"].view(-1) >= 3]))
    assert found == [{2.0, 7.0}, {8.0}]


def test_a_full_ring_is_sampled_between_writes() -> None:
    """Named defect: it fails, as the cursor of several rows is compared as if it were a number."""
    for library in LIBRARIES:
        buffer = buffer_of(library, [4], size=4)
        buffer.sample()
        buffer.extend(steps([2, 2], first=10))
        if library is theirs:
            with pytest.raises(RuntimeError, match="ambiguous"):
                buffer.sample()
    assert goals(buffer.sample(200)) == {11.0, 12.0, 13.0, 14.0}


def test_the_generator_that_is_given_draws_the_goals_too() -> None:
    """Named defect: they are drawn from torch's global one."""
    for library in LIBRARIES:
        found = []
        for seed in (0, 1):
            torch.manual_seed(seed)
            generator = torch.Generator().manual_seed(5)
            found.append(buffer_of(library, [9], generator=generator).sample()["desired_goal"])
        assert torch.equal(*found) == (library is ours)


def test_any_row_of_a_batch_may_get_a_goal_and_the_only_one_too() -> None:
    """Named defect: it is always the first rows, and none where the share is less than one."""
    for library in LIBRARIES:
        several = buffer_of(library, [9], her_ratio=0.5, batch_size=8)
        is_new = torch.stack([several.sample()["desired_goal"].view(-1) for _ in range(99)]) != FAR
        single = buffer_of(library, [9], her_ratio=0.5, batch_size=1)
        alone = [goals(single.sample()) for _ in range(99)]
        if library is theirs:
            assert is_new[:, :4].all() and not is_new[:, 4:].any()
            assert alone == [{FAR}] * 99
    assert is_new.any(0).all() and not is_new.all(0).any()
    assert 20 < sum(each != {FAR} for each in alone) < 80


def test_rewards_of_one_dimension_are_taken() -> None:
    """Named defect: its page says that they are, and it fails."""
    flat = functools.partial(buffer_of, reward_fn=lambda batch: reward(batch).squeeze(-1))
    with pytest.raises(ValueError, match="Failed to update 'reward'"):
        flat(theirs, [4]).sample()
    assert flat(ours, [4]).sample()["next", "reward"].shape == (64, 1)


def test_rows_may_be_in_a_list() -> None:
    """Named defect: it fails with the storage that it takes by default."""
    with pytest.raises(AttributeError, match="'list' object has no attribute 'get'"):
        buffer_of(theirs, [4], storage=theirs.ListStorage(9)).sample()
    assert goals(buffer_of(ours, [4], storage=ours.ListStorage(9)).sample()) <= {1.0, 2.0, 3.0, 4.0}


def test_transforms_act_on_the_new_goals() -> None:
    """Named defect: they act on the stored ones, and new goals are put in as they are stored."""
    from torchrl.envs import ObservationNorm

    for library, kind in ((theirs, ObservationNorm), (ours, ours.ObservationNorm)):
        buffer = buffer_of(library, [4], strategy="final")
        buffer.append_transform(kind(loc=0.0, scale=100.0, in_keys=["desired_goal"]))
        expected = {3.0} if library is theirs else {400.0}
        assert goals(buffer.sample()) == expected


def test_loading_a_state_leaves_it_as_it_is() -> None:
    """Named defect: a part of it is taken out, so that it loads once."""
    for library in LIBRARIES:
        buffer = buffer_of(library, [4])
        state = buffer.state_dict()
        names = {*state}
        buffer.load_state_dict(state)
        assert ({*state} == names) == (library is ours)


@pytest.mark.parametrize(
    ("arguments", "kind", "argument"),
    [
        ({"strategy": "past"}, UsageError, "strategy"),
        ({"her_ratio": 2}, UsageError, "ratio"),
        ({"reward_fn": 3}, UsageError, "reward_fn"),
        ({"checkpointer": 1}, Unsupported, "checkpointer"),
    ],
)
def test_arguments_out_of_range_are_rejected(arguments: Any, kind: Any, argument: str) -> None:
    with pytest.raises(kind) as error:
        buffer_of(ours, [4], **arguments)
    assert (error.value.argument, [error.value.found]) == (argument, [*arguments.values()])
    with pytest.raises(TypeError, match="goal"):
        buffer_of(ours, [4], goal="x")


def test_rows_that_do_not_say_what_a_step_achieved_are_refused() -> None:
    buffer = buffer_of(ours)
    buffer.extend(steps([4]).exclude(("next", "achieved_goal")))
    with refused(UnknownKey, found=["next.achieved_goal"]):
        buffer.sample()
