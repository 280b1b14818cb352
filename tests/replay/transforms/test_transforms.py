"""Transforms: what each does to a batch, and each TorchRL defect that it does not have."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from datasets_cli import (
    CatTensors,
    Compose,
    DoubleToFloat,
    ExcludeTransform,
    ExperienceReplay,
    InitTracker,
    LazyTensorStorage,
    ListStorage,
    ObservationNorm,
    RenameTransform,
    ReplayBuffer,
    Reward2Go,
    RewardScaling,
    RewardSum,
    SelectTransform,
    StepCounter,
    ToTensorImage,
    UnsqueezeTransform,
)
from datasets_cli.errors import UnknownKey, UsageError, WrongRows, WrongSize
from datasets_cli.replay import RandomCropTensorDict
from datasets_cli.replay.transforms.transform import Inverted
from tests.support.refusals import refused
from tests.support.trajectory_rows import TrajectoryRows, chi_square_score

REWARD, DONE = ("next", "reward"), ("next", "done")


def steps(reward: list[float], done: list[int]) -> TensorDict:
    """Steps in a row ``[T]``."""
    count = len(reward)
    batch = TensorDict({"time": torch.arange(count)}, [count])
    batch[REWARD] = torch.tensor(reward).unsqueeze(-1)
    batch[DONE] = torch.tensor(done, dtype=torch.bool).unsqueeze(-1)
    return batch


def test_a_chain_goes_forth_and_its_inverse_back() -> None:
    first, second = (RenameTransform([a], [b], [a], [b]) for a, b in ("ab", "bc"))
    chain = Compose([first])
    chain.append(second)
    chain.insert(0, lambda batch: batch)
    assert len(chain) == 3
    assert list(chain)[1:] == [first, second]
    assert chain[2] is second
    batch = TensorDict({"a": torch.ones(2)}, [2])
    assert set(chain[1:](batch.copy()).keys()) == {"c"}
    assert set(chain.inv(TensorDict({"c": torch.ones(2)}, [2])).keys()) == {"a"}


def test_a_chain_refuses_what_is_no_transform_or_returns_nothing() -> None:
    with refused(UsageError, argument="transform", found=3):
        Compose(3)
    with refused(UsageError, expected="a batch"):
        Compose(lambda batch: None)(steps([1.0], [1]))


@pytest.mark.parametrize(
    "transform",
    [
        CatTensors(["nosuch"]),
        RenameTransform(["nosuch"], ["b"]),
        ObservationNorm(0.0, 1.0, in_keys="nosuch"),
        ToTensorImage(in_keys=[("next", "nosuch")]),
        RewardSum(in_keys=["nosuch"]),
    ],
)
def test_a_missing_entry_is_named_with_those_there_are(transform: Any) -> None:
    with refused(UnknownKey, found=["next.done", "next.reward", "time"]):
        transform(steps([1.0], [1]))


@pytest.mark.parametrize(
    "make",
    [
        lambda: CatTensors([]),
        lambda: RenameTransform(["a", "b"], ["c"]),
        lambda: RenameTransform(["a", "b"], ["b", "c"]),
        lambda: ObservationNorm(in_keys=["a"]),
        lambda: UnsqueezeTransform(0, in_keys=["a"]),
        lambda: DoubleToFloat(out_keys=["a"]),
        lambda: RandomCropTensorDict(0),
        lambda: StepCounter(max_steps=0),
        lambda: RewardSum(in_keys=["a", "b"], reset_keys=["c"]),
    ],
)
def test_arguments_that_make_no_sense_are_refused(make: Any) -> None:
    with pytest.raises(UsageError):
        make()


def test_entries_of_fewer_dimensions_can_be_joined() -> None:
    batch = TensorDict({"a": torch.zeros(1), "b": torch.ones(1)}, [])
    with refused(WrongRows, found=[[1], [1]]):
        CatTensors(["a", "b"], dim=-2)(batch.copy())
    joined = CatTensors(["a", "b"], dim=-2, unsqueeze_if_oor=True)(batch)
    assert joined["observation_vector"].tolist() == [[0.0], [1.0]]


def test_a_selection_keeps_rewards_and_flags_where_ted_has_them() -> None:
    """Named defect: TorchRL keeps those of the root alone, where a dataset has no reward."""
    batch = steps([1.0], [1]).set("a", torch.ones(1))
    kept = SelectTransform("a")(batch)
    assert set(kept.keys(True, True)) == {"a", REWARD, DONE}
    kept = SelectTransform("a", keep_rewards=False, keep_dones=False)(batch)
    assert set(kept.keys(True, True)) == {"a"}
    assert set(ExcludeTransform("next")(batch).keys()) == {"a", "time"}


def test_rows_are_not_stored_as_float64_unasked() -> None:
    """Named defect: TorchRL's inverse doubles the size of every float32 entry."""
    data = TensorDict({"a": torch.ones(2), "b": torch.ones(2)}, [2])
    assert DoubleToFloat().inv(data)["a"].dtype == torch.float32
    stored = DoubleToFloat(in_keys_inv=["a"]).inv(data)
    assert (stored["a"].dtype, stored["b"].dtype) == (torch.float64, torch.float32)


def test_a_dataset_s_statistics_make_its_observations_standard(door: str) -> None:
    """Named defect: TorchRL works statistics out of an environment alone."""
    replay = ExperienceReplay(door, batch_size=64, seed=0)
    norm = ObservationNorm.from_dataset(replay, ["observation", ("next", "observation")])
    source = np.fromfile(replay.data_path / "observation.memmap", np.float32).reshape(-1, 39)
    mean, deviation = source.astype(float).mean(0), source.astype(float).std(0, ddof=1).clip(1e-6)
    np.testing.assert_allclose(norm.loc, mean, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(norm.scale, deviation, rtol=1e-5)
    replay.append_transform(norm)
    batch = replay.sample()
    right = (source[batch["index"]] - np.float32(mean)) / np.float32(deviation)
    np.testing.assert_allclose(batch["observation"], right, rtol=1e-3, atol=1e-3)
    assert batch["next", "observation"].dtype == torch.float32
    with refused(UnknownKey, key=("nosuch",)):
        ObservationNorm.from_dataset(replay.storage, "nosuch")


def test_statistics_come_in_chunks_and_know_no_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets_cli.replay.transforms.scaling.CHUNK_ROWS", 3)
    rows = TrajectoryRows([10])
    norm = ObservationNorm.from_dataset(rows, "row")
    assert float(norm.loc) == 4.5
    assert math.isclose(float(norm.scale), np.arange(10).std(ddof=1), rel_tol=1e-6)
    with refused(WrongRows, key=("row",), found=1):
        ObservationNorm.from_dataset(TrajectoryRows([1]), "row")
    monkeypatch.setattr(rows, "gather", lambda index: {"row": index / index})
    with refused(WrongRows, key=("row",), expected="finite numbers"):
        ObservationNorm.from_dataset(rows, "row")


@pytest.mark.parametrize("storage", [ListStorage, LazyTensorStorage])
def test_statistics_are_those_of_any_storage(storage: Any) -> None:
    made = ReplayBuffer(storage=storage(9))
    made.extend(TensorDict({"n": {"x": torch.arange(5.0)}}, [5]))
    norm = ObservationNorm.from_dataset(made, [("n", "x")])
    assert (float(norm.loc), float(norm.scale)) == (2.0, pytest.approx(2.5**0.5))
    with refused(UnknownKey, key=("n", "y")):
        ObservationNorm.from_dataset(made.storage, [("n", "y")])
    plain = ReplayBuffer(storage=storage(9))
    plain.extend(torch.arange(5.0))
    with refused(UnknownKey, key=("x",)):
        ObservationNorm.from_dataset(plain, ["x"])


def test_a_reward_can_be_turned_round() -> None:
    """Named defect: TorchRL makes any scale below 1e-6 that, and so a negative one."""
    assert RewardScaling(1.0, -2.0)(steps([3.0], [1]))[REWARD].item() == -5.0


def test_rewards_are_summed_within_each_trajectory() -> None:
    """Named defect: TorchRL wants a dimension called time, sums along another, and past ends."""
    batch = RewardSum()(steps([1.0, 2.0, math.nan, 4.0, 5.0], [0, 0, 1, 0, 0]))
    sums = batch["next", "episode_reward"].view(-1)
    assert sums[[0, 1, 3, 4]].tolist() == [1.0, 3.0, 4.0, 9.0]
    assert math.isnan(sums[2])
    batch["is_init"] = torch.tensor([True, True, False, False, True])
    anew = RewardSum(out_keys=["sum"], reset_keys=["is_init"])(batch)["sum"].view(-1)
    assert anew[[0, 1, 3, 4]].tolist() == [1.0, 2.0, 4.0, 5.0]


def test_sums_of_many_steps_are_right() -> None:
    generator = torch.Generator().manual_seed(0)
    reward = torch.randint(-5, 6, (2, 5_000, 1), generator=generator)
    done = torch.rand((2, 5_000, 1), generator=generator) < 0.01
    done[:, -1] = True
    batch = TensorDict({"next": {"reward": reward, "done": done}}, [2, 5_000])
    total = torch.zeros(2, 1, dtype=torch.int64)
    for step in range(5_000):
        total = total + reward[:, step]
        if step % 499 == 0:
            assert torch.equal(RewardSum()(batch)["next", "episode_reward"][:, step], total)
        total = torch.where(done[:, step], 0, total)


def test_rewards_to_go_want_an_end_and_leave_what_is_read_alone() -> None:
    data = steps([1.0, 2.0, 4.0, 8.0], [0, 1, 0, 0])
    stored = Reward2Go(gamma=0.5)
    assert stored.inv(data)[REWARD].view(-1).tolist() == [2.0, 2.0, 8.0, 8.0]
    assert stored(data) is data
    assert data[REWARD].view(-1).tolist() == [1.0, 2.0, 4.0, 8.0]
    with refused(WrongRows, key=DONE):
        stored.inv(data[2:])


def test_rewards_of_float64_are_discounted_by_a_gamma_of_float64() -> None:
    data = steps([1.0] * 1000, [0] * 999 + [1])
    data[REWARD] = data[REWARD].double()
    found = Reward2Go(gamma=0.99).inv(data)[REWARD]
    assert float(found[0]) == pytest.approx((1 - 0.99**1000) / (1 - 0.99), rel=1e-13)


def test_a_transform_turned_round_inverts_what_is_read() -> None:
    data = steps([1.0, 2.0], [0, 1])
    turned = Inverted(Reward2Go())
    assert turned(data)[REWARD].view(-1).tolist() == [3.0, 2.0]
    assert turned.inv(data)[REWARD].view(-1).tolist() == [1.0, 2.0]
    assert Inverted(StepCounter())(data) is data
    assert "step_count" in Inverted(StepCounter()).inv(data)
    assert "step_count" not in data


def test_a_crop_begins_at_every_step_that_leaves_room_alike() -> None:
    """Named defect: TorchRL never draws the last start."""
    batch = TensorDict({"time": torch.arange(10).expand(60_000, 10)}, [60_000, 10])
    crop = RandomCropTensorDict(4, generator=torch.Generator().manual_seed(0))(batch)
    assert crop.batch_size == (60_000, 4)
    assert bool((crop["time"].diff(dim=1) == 1).all())
    counts = np.bincount(crop["time"][:, 0].numpy(), minlength=7)
    assert abs(chi_square_score(counts, np.full(7, 60_000 / 7))) < 4


def test_a_crop_as_long_as_its_row_is_the_row() -> None:
    """Named defect: TorchRL cannot cut it."""
    batch = steps([1.0, 2.0, 3.0], [0, 0, 1])
    assert torch.equal(RandomCropTensorDict(3)(batch)["time"], batch["time"])
    with refused(WrongSize, argument="sub_seq_len", expected=4, found=3):
        RandomCropTensorDict(4)(batch)
    with refused(UsageError, argument="sample_dim", found=1):
        RandomCropTensorDict(2, sample_dim=1)(batch)


def test_a_crop_has_no_padding() -> None:
    lengths = torch.tensor([3, 5, 9]).repeat(5000)
    mask = torch.arange(9) < lengths.unsqueeze(1)
    batch = TensorDict({"time": torch.arange(9).expand(15_000, 9), "mask": mask}, [15_000, 9])
    crop = RandomCropTensorDict(3, mask_key="mask")(batch)
    assert bool(crop["mask"].all())
    starts = [set(crop["time"][lengths == size, 0].tolist()) for size in (3, 5, 9)]
    assert starts == [{0}, {0, 1, 2}, set(range(7))]
    with refused(WrongSize, argument="sub_seq_len", expected=4, found=3):
        RandomCropTensorDict(4, mask_key="mask")(batch)
    batch["mask"] = mask.unsqueeze(-1)
    with refused(WrongRows, key=("mask",)):
        RandomCropTensorDict(3, mask_key="mask")(batch)


def test_steps_are_counted_and_firsts_marked_in_slices_one_after_the_other() -> None:
    batch = Compose(StepCounter(), InitTracker())(steps([0.0] * 5, [0, 0, 1, 0, 0]))
    assert batch["step_count"].tolist() == [[0], [1], [2], [0], [1]]
    assert batch["next", "step_count"].tolist() == [[1], [2], [3], [1], [2]]
    assert batch["is_init"].tolist() == [[True], [False], [False], [True], [False]]
    with refused(WrongRows, key=DONE, expected="[*B, T]"):
        StepCounter()(batch[0])


def test_a_limit_of_steps_truncates_and_can_leave_done_alone() -> None:
    batch = StepCounter(max_steps=2, truncated_key="cut", update_done=False)(
        steps([0.0] * 5, [0, 0, 1, 0, 0])
    )
    assert batch["next", "cut"].view(-1).tolist() == [False, True, False, False, True]
    assert batch[DONE].view(-1).tolist() == [False, False, True, False, False]
    assert batch["step_count"].view(-1).tolist() == [0, 1, 0, 0, 1]


def test_a_chain_pickles() -> None:
    chain = Compose(RewardSum(), StepCounter(), RewardScaling(0.0, 2.0), DoubleToFloat())
    copy = pickle.loads(pickle.dumps(chain))
    batch = steps([1.0, 2.0], [0, 1])
    assert bool((copy(batch.clone()) == chain(batch.clone())).all())
