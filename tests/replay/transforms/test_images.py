"""Transforms of frames: scaled as they stand, or channels put first; nothing is turned unasked."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from datasets_cli import ExperienceReplay, ScaledFloatFrame, ToTensorImage
from datasets_cli.config import Config
from datasets_cli.errors import UnknownKey, UsageError, WrongRows, WrongSize
from tests.support.refusals import refused


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
