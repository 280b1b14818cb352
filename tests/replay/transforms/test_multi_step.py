"""Transforms of several steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict

from datasets_cli import (
    CatFrames,
    Compose,
    D4RLExperienceReplay,
    DoubleToFloat,
    ExcludeTransform,
    ExperienceReplay,
    InitTracker,
    LazyTensorStorage,
    ListStorage,
    MultiStep,
    OfflineToOnline,
    RandomSampler,
    ReplayBuffer,
    ReplayBufferEnsemble,
    Reward2Go,
    RewardSum,
    SliceSampler,
    StepCounter,
    TensorDictReplayBuffer,
    Transform,
)
from datasets_cli.errors import UsageError, WrongRows
from datasets_cli.replay import MultiStepTransform, RandomCropTensorDict
from datasets_cli.replay.transforms.transform import Inverted
from tests.support.refusals import check_refused, refused


def rollout(done: list[bool], seed: int = 0) -> TensorDict:
    """Steps in a row ``[T]``, each flag its own."""
    generator = torch.Generator().manual_seed(seed)
    count = len(done)
    flags = torch.tensor(done).unsqueeze(-1)
    return TensorDict(
        {
            "observation": torch.arange(count),
            "next": {
                "observation": torch.arange(1, count + 1),
                "reward": torch.rand(count, 1, generator=generator, dtype=torch.float64),
                "done": flags,
                "terminated": flags.clone(),
            },
        },
        [count],
    )


@settings(max_examples=25)
@given(
    done=st.lists(st.booleans(), min_size=1, max_size=12),
    n_steps=st.integers(1, 6),
    gamma=st.sampled_from([0.5, 0.9, 1.0]),
)
def test_a_row_spans_n_steps_or_up_to_an_end(done: list[bool], n_steps: int, gamma: float) -> None:
    batch = rollout(done)
    found = MultiStep(gamma, n_steps, done_keys=[])(batch)
    count = len(done)
    for row in range(count):
        last = row
        while not done[last] and last - row + 1 < n_steps and last < count - 1:
            last += 1
        rewards = batch["next", "reward"][row : last + 1, 0].tolist()
        total = sum(gamma**k * reward for k, reward in enumerate(rewards))
        assert found["next", "reward"][row].item() == pytest.approx(total, rel=1e-12)
        assert found["next", "observation"][row] == last + 1
        assert found["steps_to_next_obs"][row] == last - row + 1
        assert found["gamma"][row].item() == pytest.approx(gamma ** (last - row + 1))
        assert found["next", "terminated"][row].item() == done[last]
        assert found["nonterminal"][row].item() == (not done[row] and row < count - 1)
    same = bool((batch == rollout(done)).all())
    assert same


def test_flags_stay_by_default_and_move_when_asked() -> None:
    batch = rollout([False, False, True])
    assert MultiStep(0.9, 3)(batch)["next", "terminated"].view(-1).tolist() == [False, False, True]
    moved = MultiStep(0.9, 3, done_keys=["done"])(batch)["next"]
    assert moved["terminated"].all()
    assert moved["done"].view(-1).tolist() == [False, False, True]


@settings(max_examples=20)
@given(
    ends=st.lists(
        st.sampled_from(["-", "-", "-", "terminated", "truncated"]), min_size=8, max_size=20
    )
)
def test_a_value_target_adds_no_value_after_a_terminal_state(ends: list[str]) -> None:
    """Of a span that reaches one, whichever way the rows get there."""
    batch, gamma, n_steps = rollout([end != "-" for end in ends]), 0.5, 3
    batch["next", "terminated"] = torch.tensor([end == "terminated" for end in ends]).unsqueeze(-1)
    values = 100 + torch.arange(len(ends) + 1).double()  # of the state before each step
    written = MultiStepTransform(n_steps, gamma).inv(batch)
    for rows in (MultiStep(gamma, n_steps, mark_terminated=True)(batch), written):
        ahead = values[rows["next", "observation"].flatten()]
        alive = ~rows["next", "terminated"].flatten()
        found = rows["next", "reward"].flatten() + rows["gamma"] * ahead * alive
        for row, target in enumerate(found.tolist()):
            right, factor, step = 0.0, 1.0, row
            while step < min(row + n_steps, len(ends)) and (step == row or ends[step - 1] == "-"):
                right += factor * batch["next", "reward"][step].item()
                factor, step = factor * gamma, step + 1
            right += factor * values[step].item() * (ends[step - 1] != "terminated")
            assert target == pytest.approx(right)
        done = batch["next", "done"][: len(rows)]
        assert torch.equal(rows["next", "done"], done)  # still tells trajectories apart


def test_flags_of_both_classes_are_torchrls_when_asked() -> None:
    batch = rollout([False, False, True, False, False, False])
    flags = batch["next", "terminated"]
    assert torch.equal(MultiStep(0.9, 3)(batch)["next", "terminated"], flags)
    written = MultiStepTransform(3, 0.9, mark_terminated=False).inv(batch)
    assert torch.equal(written["next", "terminated"], flags[:3])
    assert MultiStepTransform(3, 0.9).inv(batch)["next", "terminated"].flatten().all()


def test_nonterminal_is_right_for_one_step_too() -> None:
    """Named defect: with n_steps=1 TorchRL's is False everywhere."""
    nonterminal = MultiStep(0.9, 1)(rollout([False, True, False, False]))["nonterminal"]
    assert nonterminal.tolist() == [True, False, True, False]


def test_no_span_reaches_into_padding() -> None:
    """Named defect: TorchRL spans padding where a trajectory was cut without a done flag."""
    batch = rollout([False] * 4)
    batch["collector", "mask"] = torch.tensor([True, True, False, False])
    found = MultiStep(0.9, 3)(batch)
    assert found["next", "observation"][:2].tolist() == [2, 2]
    assert found["nonterminal"].tolist() == [True, False, False, False]


def test_several_rewards_keep_their_originals_apart() -> None:
    """Named defect: TorchRL gives all of them one name, so that the last one wins."""
    batch = rollout([False, False, False, True])
    batch["next", "cost"] = torch.tensor([1, 2, 3, 4]).unsqueeze(-1)
    found = MultiStepTransform(2, 0.5, reward_keys=["reward", "cost"]).inv(batch)
    assert found["next", "original_cost"].view(-1).tolist() == [1, 2]
    assert found["next", "cost"].view(-1).tolist() == [2.0, 3.5]
    reward = batch["next", "reward"]
    assert torch.equal(found["next", "original_reward"], reward[:2])


def test_rows_kept_back_do_not_follow_later_changes_of_the_data() -> None:
    written, data = MultiStepTransform(2, 1.0), rollout([False] * 4)
    right = data["next", "reward"].clone()
    assert written.inv(data).batch_size == (2,)
    data["next", "reward"].zero_()
    more = written.inv(rollout([False] * 2, seed=1))
    assert torch.equal(more["next", "original_reward"], right[2:])
    assert written(data) is data


def test_nothing_is_stored_before_there_is_enough() -> None:
    written = MultiStepTransform(3, 1.0)
    assert written.inv(rollout([False] * 3)) is None
    assert written.inv(rollout([False])).batch_size == (1,)
    with refused(WrongRows, expected="[*B, T]", found=[]):
        written.inv(rollout([False])[0])


@pytest.mark.parametrize(
    "make",
    [
        lambda: MultiStep(0.9, 0),
        lambda: MultiStep(0.0, 3),
        lambda: MultiStep(1.1, 3),
        lambda: MultiStepTransform(0, 0.9),
        lambda: MultiStep(0.9, 3)(rollout([True]).exclude(("next", "done"))),
        lambda: MultiStep(0.9, 3)(rollout([True]).exclude(("next", "reward"))),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any) -> None:
    with pytest.raises(UsageError):
        make()


# Transforms that read neighbours: refused where a sampler draws rows one by one.


KEY = ["observation"]
READING: list[Transform] = [
    StepCounter(),
    InitTracker(),
    RewardSum(),
    MultiStep(0.9, 2),
    CatFrames(2, -1, KEY),
    CatFrames(2, -1, KEY).make_rb_transform_and_sampler(4)[0],
    RandomCropTensorDict(2),
    Inverted(Reward2Go()),
    Inverted(Compose(Reward2Go())),
    Compose(DoubleToFloat(), Compose(RewardSum())),
]
WRITING: list[Transform] = [
    Reward2Go(),
    MultiStepTransform(2, 0.9),
    CatFrames(2, -1, KEY, as_inverse=True),
    ExcludeTransform("action", inverse=True),
    Inverted(StepCounter()),
    Compose(StepCounter(), Reward2Go()),
]


def steps(num_rows: int = 6) -> TensorDict:
    done = torch.zeros(num_rows, 1, dtype=torch.bool)
    after = {"done": done, "reward": torch.ones(num_rows, 1)}
    return TensorDict({"next": after}, [num_rows])


@pytest.mark.parametrize("transform", READING, ids=lambda one: type(one).__name__)
def test_steps_in_a_row_are_asked_for_wherever_rows_are_drawn_one_by_one(
    transform: Transform, door: str
) -> None:
    slices = ExperienceReplay(door, 8, slice_len=4, transform=transform)
    single = ExperienceReplay(door, 8)
    online = TensorDictReplayBuffer(storage=LazyTensorStorage(9))
    written = ReplayBuffer(storage=ListStorage(9), transform=transform)
    made: list[Any] = [
        lambda: ExperienceReplay(door, 8, transform=transform),
        lambda: single.append_transform(transform),
        lambda: slices.set_sampler(RandomSampler()),
        lambda: OfflineToOnline(single, online, transform=transform),
        lambda: ReplayBufferEnsemble(single, online).append_transform(transform),
        lambda: written.extend(steps()),
    ]
    check_refused(UsageError, [("needs consecutive steps, but RandomSampler", one) for one in made])
    assert not single.transform and slices.sampler.has_slices and not len(written)


@pytest.mark.parametrize("transform", WRITING, ids=lambda one: type(one).__name__)
def test_a_dataset_refuses_what_only_acts_on_rows_that_are_written(
    transform: Transform, door: str
) -> None:
    replay = ExperienceReplay(door, 8, slice_len=4)
    made = [
        lambda: ExperienceReplay(door, 8, slice_len=4, transform=transform),
        lambda: replay.append_transform(transform),
    ]
    check_refused(UsageError, [("when they are written", one) for one in made])
    assert ReplayBuffer(storage=LazyTensorStorage(9), transform=transform).transform


def test_sums_of_slices_begin_with_each_slice(door: str, door_source: str) -> None:
    replay = ExperienceReplay(door, 12, slice_len=4, transform=RewardSum(), seed=0)
    batch = replay.sample()
    with h5py.File(next(Path(door_source).glob("*.hdf5"))) as file:
        rewards = torch.from_numpy(file["rewards"][:])
    kept = batch["next", "reward"].view(3, 4)
    assert torch.isin(kept, rewards).all()
    torch.testing.assert_close(batch["next", "episode_reward"].view(3, 4), kept.cumsum(1))


def test_rows_that_are_trajectories_are_steps_in_a_row(door: str) -> None:
    memory = ReplayBuffer(storage=LazyTensorStorage(3), transform=StepCounter(), batch_size=2)
    memory.extend(torch.stack([steps(), steps()]))
    assert memory.sample()["step_count"].view(2, 6).tolist() == [[*range(6)]] * 2
    crop = RandomCropTensorDict(5)
    whole = D4RLExperienceReplay("door-human-v0", 2, split_trajs=True, transform=crop)
    assert whole.sample().shape == (2, 5) and whole.transform[0] is crop
    sequences = ExperienceReplay(door).sequences(7, 2, transform=StepCounter())
    assert sequences.sample()["step_count"].shape == (2, 7, 1)


def test_rows_are_transformed_in_the_order_in_which_a_collector_writes_them() -> None:
    memory = ReplayBuffer(storage=LazyTensorStorage(9), batch_size=2)
    memory.append_transform(StepCounter(), invert=True).append_transform(MultiStepTransform(1, 0.5))
    memory.extend(steps())
    assert memory[:]["step_count"].view(-1).tolist() == [0, 1, 2, 3, 4]
    sliced = ReplayBuffer(
        storage=LazyTensorStorage(9),
        sampler=SliceSampler(slice_len=3, end_key=("next", "done")),
        transform=StepCounter(),
        batch_size=3,
    )
    sliced.extend(steps())
    assert sliced.sample()["step_count"].view(-1).tolist() == [0, 1, 2]
