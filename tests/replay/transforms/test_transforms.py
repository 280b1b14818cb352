"""Transforms of batches."""

from __future__ import annotations

import itertools
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tensordict import TensorDict

from datasets_cli import (
    CatTensors,
    CenterCrop,
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
    Resize,
    Reward2Go,
    RewardScaling,
    RewardSum,
    ScaledFloatFrame,
    SelectTransform,
    StepCounter,
    TensorDictReplayBuffer,
    ToTensorImage,
    Transform,
    UnsqueezeTransform,
)
from datasets_cli.config import Config
from datasets_cli.errors import UnknownKey, UsageError, WrongRows, WrongSize
from datasets_cli.replay import DTypeCastTransform, MultiStepTransform, RandomCropTensorDict
from datasets_cli.replay.transforms import images as resampling
from datasets_cli.replay.transforms.images import resampled
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


# What a transform is: the whole protocol, one that derives from it, and any other callable.


class Whole:
    """Derives from nothing, and has exactly the members of the protocol."""

    needs_steps = only_writes = False

    def __init__(self) -> None:
        self.cleared = 0

    def __call__(self, batch: TensorDict, /) -> TensorDict:
        return batch.set("read", batch["x"] + 1)

    def inv(self, data: TensorDict, /) -> TensorDict | None:
        return data.copy().set("written", data["x"] - 1) if len(data) > 1 else None

    def undo_inv(self) -> None:
        return

    def on_clear(self) -> None:
        self.cleared += 1


class Derived(Transform):
    """Writes what does not have a default."""

    def __call__(self, batch: TensorDict, /) -> TensorDict:
        return batch.set("read", batch["x"] + 1)


class Half:
    """A callable with an inverse, as TorchRL's transforms are."""

    def __call__(self, batch: TensorDict) -> TensorDict:
        return batch.set("read", batch["x"] + 1)

    def inv(self, data: TensorDict) -> TensorDict:
        return data.copy().set("written", data["x"] - 1)


def function(batch: TensorDict) -> TensorDict:
    return batch.set("read", batch["x"] + 1)


def rows(count: int) -> TensorDict:
    return TensorDict({"x": torch.arange(count)}, [count])


@pytest.mark.parametrize("prefetch", [None, 2])
@pytest.mark.parametrize("make", [Whole, Derived, Half, lambda: function])
def test_any_callable_is_a_transform_of_a_buffer(
    make: Callable[[], Any], prefetch: int | None
) -> None:
    transform = make()
    made = TensorDictReplayBuffer(
        storage=LazyTensorStorage(9), transform=transform, batch_size=4, prefetch=prefetch
    )
    made.extend(rows(5))
    batch = made.sample()
    assert torch.equal(batch["read"], batch["x"] + 1)
    has_inverse = hasattr(transform, "inv") and not isinstance(transform, Derived)
    assert ("written" in batch.keys()) == has_inverse  # noqa: SIM118
    if has_inverse:
        assert torch.equal(batch["written"], batch["x"] - 1)
    made.empty()
    assert len(made) == 0
    assert getattr(transform, "cleared", 1) == 1


def test_a_composition_gives_transforms_back_as_they_were_given() -> None:
    whole, half = Whole(), Half()
    chain = Compose(whole, function)
    chain.append(half)
    chain.insert(0, function)
    assert [*chain] == chain.transforms == [function, whole, function, half]
    assert chain[1] is whole
    assert chain[-1] is half
    assert chain[2:].transforms == [function, half]
    assert isinstance(chain[2:], Compose)


def test_an_inverse_can_give_nothing_to_store_yet() -> None:
    chain = Compose(Half(), Whole(), function)
    assert chain.inv(rows(1)) is None
    stored = chain.inv(rows(2))
    assert stored is not None
    assert stored["written"].tolist() == [-1, 0]


def test_clearing_reaches_every_transform_also_a_turned_one() -> None:
    whole, turned, kept = Whole(), Whole(), MultiStepTransform(2, 0.9)
    chain = Compose(Compose(whole), function, Inverted(turned), Half(), kept)
    chain.on_clear()
    assert (whole.cleared, turned.cleared) == (1, 1)


# Transforms of frames: scaled as they stand, or channels put first; nothing is turned unasked.


def batch_of(*shape: int, rows: int = 2, dtype: torch.dtype = torch.uint8) -> TensorDict:
    """Frames of every value, at t and below ``next``; all of a row differ from their neighbours."""
    count = rows * int(np.prod(shape))
    frames = (torch.arange(count) * 7 % 256).reshape(rows, *shape).to(dtype)
    return TensorDict({"observation": frames, "next": {"observation": 255 - frames}}, [rows])


@pytest.mark.parametrize(
    "shape",
    [(84, 84), (4, 84, 84), (84, 84, 3), (3, 84, 84), (2, 4, 5), (7,)],
    ids=["frame", "stack", "channels last", "channels first", "small stack", "bytes"],
)
def test_frames_become_floats_and_stay_in_their_order(shape: tuple[int, ...]) -> None:
    bytes_ = batch_of(*shape)
    floats = ScaledFloatFrame()(bytes_.clone())
    for key in ("observation", ("next", "observation")):
        right = bytes_[key].numpy().astype(np.float32) / np.float32(255)
        assert floats[key].dtype == torch.float32
        assert np.array_equal(floats[key].numpy(), right)
        assert 0 <= float(floats[key].min()) <= float(floats[key].max()) <= 1


def test_scaled_frames_leave_those_of_the_batch_alone() -> None:
    batch = batch_of(4, 5)
    frames = batch["observation"]
    before = frames.clone()
    ScaledFloatFrame()(batch)
    assert frames.dtype == torch.uint8
    assert torch.equal(frames, before)


def test_scaled_frames_go_where_and_have_the_type_that_is_asked_for() -> None:
    batch = batch_of(4, 5)
    scaled = ScaledFloatFrame(in_keys=["observation"], out_keys=["pixels"], dtype=torch.float64)
    copy = pickle.loads(pickle.dumps(scaled))(batch.clone())
    assert torch.equal(copy["pixels"], batch["observation"].double() / 255)
    assert torch.equal(copy["observation"], batch["observation"])
    assert repr(scaled) == "ScaledFloatFrame(in_keys=[('observation',)])"


def test_frames_are_never_scaled_twice() -> None:
    twice = ScaledFloatFrame()(batch_of(84, 84))
    with refused(WrongRows, key=("observation",), expected=torch.uint8, found=torch.float32):
        ScaledFloatFrame()(twice)


def test_a_missing_frame_and_a_type_of_integers_are_refused() -> None:
    with refused(UnknownKey, key=("next", "observation"), found=["observation"]):
        ScaledFloatFrame()(batch_of(4, 5).exclude("next"))
    with refused(UsageError, argument="dtype", found=torch.uint8):
        ScaledFloatFrame(dtype=torch.uint8)
    with refused(WrongSize, argument="out_keys", expected=2, found=1):
        ScaledFloatFrame(out_keys=["pixels"])


@pytest.mark.parametrize("prefetch", [None, 2])
def test_frames_of_a_dataset_are_scaled_as_they_are_sampled(
    config: Config, prefetch: int | None
) -> None:
    stacks: dict[str, Any] = {"batch_size": 8, "frame_stack": 4, "seed": 0, "prefetch": prefetch}
    bytes_ = ExperienceReplay("demo/pong", **stacks).sample()
    floats = ExperienceReplay("demo/pong", transform=ScaledFloatFrame(), **stacks).sample()
    assert torch.equal(bytes_["index"], floats["index"])
    for key in ("observation", ("next", "observation")):
        assert bytes_[key].dtype == torch.uint8
        assert floats[key].shape == (8, 4, 84, 84)
        assert torch.equal(floats[key], bytes_[key].float() / 255)


# Named defect: TorchRL turns frames without channels, and stacks, on their side.


@pytest.mark.parametrize(
    ("shape", "batch_size"),
    [
        ([2, 84, 84], [2]),
        ([2, 4, 84, 84], [2]),
        ([2, 3, 84, 84], [2]),
        ([2, 5, 4, 84, 84], [2, 5]),
        ([2, 84, 3], [2]),
        ([2, 4, 4], [2]),
        ([84, 84], []),
        ([2, 84, 84, 2], [2]),
        ([2], [2]),
    ],
)
def test_frames_without_a_channel_dimension_are_not_turned(
    shape: list[int], batch_size: list[int]
) -> None:
    batch = TensorDict({"pixels": torch.zeros(shape, dtype=torch.uint8)}, batch_size)
    with refused(WrongRows, key=("pixels",), expected="[..., H, W, C]", found=shape):
        ToTensorImage()(batch)
    assert batch["pixels"].dtype == torch.uint8, "refused before anything is changed"


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("batch_size", [[], [2], [2, 5]])
def test_channels_come_first(channels: int, batch_size: list[int]) -> None:
    shape = [*batch_size, 6, 7, channels]
    frames = torch.arange(int(np.prod(shape))).remainder(256).reshape(shape).to(torch.uint8)
    turned = ToTensorImage()(TensorDict({"pixels": frames}, batch_size))["pixels"]
    assert turned.shape == (*batch_size, channels, 6, 7)
    right = np.moveaxis(frames.numpy(), -1, -3).astype(np.float32) / np.float32(255)
    assert np.array_equal(turned.numpy(), right)


def test_a_tolerant_transform_scales_stacks_and_leaves_their_order() -> None:
    batch = TensorDict({"pixels": torch.full((2, 4, 6, 7), 51, dtype=torch.uint8)}, [2])
    assert torch.equal(
        ToTensorImage(shape_tolerant=True)(batch)["pixels"], torch.full((2, 4, 6, 7), 51) / 255
    )


# Resize, CenterCrop and DTypeCastTransform, against Pillow, torch's own filter and TorchRL.


KEYS = ["observation", ("next", "observation")]


def frames_of(*shape: int) -> torch.Tensor:
    generator = np.random.default_rng(0)
    hard = generator.integers(0, 2, shape) * 255  # edges, where roundings show
    return torch.from_numpy(np.where(generator.random(shape) < 0.5, hard, 255 - hard // 2)).byte()


def test_bytes_along_one_dimension_are_those_of_pillow() -> None:
    for size_in, size_out in itertools.product((1, 2, 7, 84, 210), (1, 3, 64, 84, 127)):
        frame = frames_of(size_in, 5)
        tall = Image.fromarray(frame.numpy()).resize((5, size_out), Image.Resampling.BILINEAR)
        assert np.array_equal(resampled(frame, size_out, -2).numpy(), np.asarray(tall))
        wide = Image.fromarray(frame.T.contiguous().numpy())
        expected = np.asarray(wide.resize((size_out, 5), Image.Resampling.BILINEAR))
        assert np.array_equal(resampled(frame.T, size_out, -1).numpy(), expected)


@pytest.mark.parametrize(("height", "width"), [(64, 64), (100, 31)])
def test_floats_are_those_of_torchs_filter(height: int, width: int) -> None:
    frames = frames_of(2, 3, 84, 80).float() / 255
    expected = torch.nn.functional.interpolate(
        frames, (height, width), mode="bilinear", antialias=True
    )
    batch = Resize(width, height, in_keys=["observation"])(TensorDict({"observation": frames}, [2]))
    assert batch["observation"].dtype == torch.float32
    assert torch.allclose(batch["observation"], expected, atol=1e-5)


def test_each_frame_of_a_stack_and_each_channel_is_resized_alone() -> None:
    frames = frames_of(2, 4, 20, 30)
    alone = torch.stack(
        [resampled(resampled(frame, 8, -1), 6, -2) for frame in frames.flatten(0, 1)]
    )
    expected = alone.view(2, 4, 6, 8)
    batch = TensorDict({"observation": frames, "next": {"observation": frames}}, [2])
    assert torch.equal(Resize(8, 6, in_keys=KEYS)(batch)["next", "observation"], expected)
    last = TensorDict({"pixels": frames.movedim(1, -1)}, [2])
    assert torch.equal(Resize(8, 6, channels_last=True)(last)["pixels"], expected.movedim(1, -1))


@pytest.mark.parametrize(("size", "top"), [(84, 0), (83, 0), (81, 2), (80, 2), (1, 42)])
def test_the_middle_is_cut_as_torchrl_cuts_it(size: int, top: int) -> None:
    """torchvision, which TorchRL crops by, is not installed: ``int(round((84 - size) / 2))``."""
    frames = frames_of(3, 84, 84)
    batch = TensorDict({"pixels": frames}, [3])
    found = CenterCrop(size)(batch)["pixels"]
    assert torch.equal(found, frames[:, top : top + size, top : top + size])
    found.zero_()
    assert frames.any(), "it is a copy"


def test_width_and_height_are_what_they_are_called() -> None:
    batch = TensorDict({"pixels": frames_of(2, 30, 40, 3)}, [2])
    assert CenterCrop(w=8, h=6, channels_last=True)(batch.clone())["pixels"].shape == (2, 6, 8, 3)
    assert Resize(w=8, h=6, channels_last=True)(batch.clone())["pixels"].shape == (2, 6, 8, 3)


def test_no_frames_become_no_frames_and_many_are_done_in_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    none = TensorDict({"pixels": frames_of(0, 8, 8)}, [0])
    assert Resize(4)(none)["pixels"].shape == (0, 4, 4)
    frames = frames_of(7, 9, 8)
    whole = resampled(frames, 4, -2)
    monkeypatch.setattr(resampling, "BLOCK_NUMBERS", 150)  # two frames
    assert torch.equal(resampled(frames, 4, -2), whole)


def test_what_cannot_be_is_refused() -> None:
    batch = TensorDict(
        {"pixels": torch.zeros(2, 8, 8, dtype=torch.int64), "x": torch.zeros(2)}, [2]
    )
    with refused(WrongRows, key=("pixels",), found=torch.int64):
        Resize(4)(batch)
    with refused(WrongSize, key=("pixels",), expected=9, found=8):
        CenterCrop(9, 2)(batch)
    with refused(WrongRows, key=("x",), expected="[..., H, W]", found=[2]):
        Resize(4, in_keys=["x"])(batch)
    with refused(UsageError, argument="w", found=0):
        CenterCrop(0)
    with refused(UsageError, argument="interpolation", found="bicubic"):
        Resize(4, interpolation="bicubic")


def typed() -> TensorDict:
    rows = {"a": torch.tensor([0.1, 3e38]).double(), "b": torch.tensor([1, 2])}
    return TensorDict({**rows, "next": {"a": torch.tensor([-0.5, 2.0]).double()}}, [2])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # TorchRL's own, when it is imported
@pytest.mark.parametrize("keys", [None, ["b"], [("next", "a"), "a"]])
def test_casts_are_those_of_torchrl(keys: list[str | tuple[str, ...]] | None) -> None:
    from torchrl.envs.transforms import DTypeCastTransform as Theirs

    ours = DTypeCastTransform(torch.float64, torch.float32, in_keys=keys)(typed())
    theirs = Theirs(torch.float64, torch.float32, in_keys=keys)(typed())
    for key in ("a", "b", ("next", "a")):
        assert ours[key].dtype == theirs[key].dtype and torch.equal(ours[key], theirs[key])


def test_casts_are_undone_where_rows_are_stored() -> None:
    both = DTypeCastTransform(torch.float64, torch.float32, in_keys=["a"], in_keys_inv=["a"])
    read = both(typed())
    assert read["a"].dtype == torch.float32 and both.inv(read)["a"].dtype == torch.float64
    with refused(UsageError, argument="dtype_out", found="float32"):
        DTypeCastTransform(torch.float64, "float32")  # type: ignore[arg-type]
    with refused(UsageError, argument="out_keys"):
        DTypeCastTransform(torch.float64, torch.float32, out_keys=["a"])
