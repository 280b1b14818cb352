"""Resize, CenterCrop and DTypeCastTransform, against Pillow, torch's own filter and TorchRL."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from PIL import Image
from tensordict import TensorDict

from datasets_cli import CenterCrop, Resize
from datasets_cli.errors import UsageError, WrongRows, WrongSize
from datasets_cli.replay import DTypeCastTransform
from datasets_cli.replay.transforms import images as resampling
from datasets_cli.replay.transforms.images import resampled
from tests.support.refusals import refused

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
