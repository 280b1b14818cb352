"""Frames keep their bytes' type and the order of their dimensions; Pillow resizes them alike."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from datasets_cli import ExperienceReplay, ObservationNorm, open_dataset
from datasets_cli.cli.main import main
from datasets_cli.errors import UsageError, WrongSize
from datasets_cli.preprocessing.columns import KnownColumns
from datasets_cli.project import Pipeline
from datasets_cli.replay.transforms import scaling
from datasets_cli.schema.columns import Column
from datasets_cli.store.manifest import Manifest
from tests.support.paths import DEMO_DATA
from tests.support.refusals import refused

LOGS = DEMO_DATA / "atari_dqn" / "Pong" / "5" / "replay_logs"


def frames_of_the_file() -> np.ndarray:
    """Return the first rows' frames, uint8 ``[n, 84, 84]``; three are before the first row."""
    with gzip.open(LOGS / "$store$_observation_ckpt.0.gz") as file:
        frames: np.ndarray = np.load(file)[3:]
    return frames


def resized(frames: np.ndarray, height: int, width: int) -> np.ndarray:
    """Return what Pillow makes of frames, the widths first."""
    small = []
    for frame in frames:
        wide = Image.fromarray(frame).resize((width, frame.shape[0]), Image.Resampling.BILINEAR)
        small.append(np.asarray(wide.resize((width, height), Image.Resampling.BILINEAR)))
    return np.stack(small)


@pytest.fixture(params=["ted", "compact"])
def pong(request: pytest.FixtureRequest) -> str:
    assert main(["download", "demo/pong", "--layout", request.param, "-q"]) == 0
    return "demo/pong"


def test_frames_are_cropped_and_then_resized_as_by_pillow(pong: str) -> None:
    call = ["preprocess", pong, "--resize", "64x48", "--crop", "80x60", "--name", "x"]
    assert main([*call, "--workers", "0", "--num", "200"]) == 0
    expected = resized(frames_of_the_file()[:200, 2:82, 12:72], 64, 48)
    found = open_dataset("derived/x").column(("observation",)).numpy()
    assert found.dtype == np.uint8 and np.array_equal(found, expected)
    after = open_dataset("derived/x").column(("next", "observation")).numpy()
    same = ~open_dataset("derived/x").column(("next", "done")).numpy()[:-1, 0]
    assert np.array_equal(after[:-1][same], expected[1:][same]) and same.sum() > 100


@pytest.mark.parametrize(
    ("shape", "channels_last"),
    [
        ((84, 84), False),
        ((9, 4), False),
        ((4, 84, 84), False),
        ((84, 84, 3), True),
        ((10, 64, 48), False),
    ],
)
def test_where_channels_are_is_told_by_the_shape(
    shape: tuple[int, ...], channels_last: bool
) -> None:
    assert columns_of("uint8", shape).frames("resize") == {channels_last: [("pixels",)]}


def columns_of(dtype: str, shape: tuple[int, ...]) -> KnownColumns:
    column = Column(("pixels",), dtype, shape)
    return KnownColumns(Manifest("toy/frames", "ted", 1, 1, (column,), {}))


@pytest.mark.parametrize(
    ("dtype", "shape", "found"),
    [
        ("uint8", (3, 64, 3), [3, 64, 3]),
        ("uint8", (84,), ""),
        ("float32", (84, 84), "pixels float32 [84, 84]"),
        ("uint8", (4, 3, 84, 84), "pixels uint8 [4, 3, 84, 84]"),
    ],
)
def test_columns_that_are_not_frames_are_refused(
    dtype: str, shape: tuple[int, ...], found: object
) -> None:
    with refused(UsageError, argument="resize", found=found):
        columns_of(dtype, shape).frames("resize")


def test_frames_that_get_another_size_are_not_normalised_in_the_same_call(
    pong: str, tmp_path: Path
) -> None:
    replay, dest = ExperienceReplay(pong), tmp_path / "x"
    with refused(UsageError, argument="normalise", key=("observation",)):
        replay.preprocess(Pipeline(resize="64x64", normalise="observation"), dest=dest)
    with refused(WrongSize, key=("next", "observation"), found=84):
        replay.preprocess(Pipeline(crop="90x90"), dest=dest, num_workers=0)


def test_bytes_that_are_normalised_become_floats(pong: str) -> None:
    call = ["preprocess", pong, "--normalise", "observation", "--num", "50", "--name", "x"]
    assert main([*call, "--workers", "0"]) == 0
    frames = frames_of_the_file()[:50].astype(np.float64)
    varies = frames.std(0, ddof=1) > 0
    expected = (frames - frames.mean(0))[:, varies] / frames.std(0, ddof=1)[varies]
    found = open_dataset("derived/x").column(("observation",)).numpy()
    assert found.dtype == np.float32
    assert np.allclose(found[:, varies], expected, atol=1e-3)
    assert np.allclose(found[:, ~varies], 0)


def test_wide_rows_are_summed_up_a_few_at_a_time(
    pong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = ExperienceReplay(pong)
    whole = ObservationNorm.from_dataset(frames, ["observation"])
    monkeypatch.setattr(scaling, "CHUNK_NUMBERS", 84 * 84 * 100)
    parts = ObservationNorm.from_dataset(frames, ["observation"])
    assert torch.allclose(parts.loc, whole.loc) and torch.allclose(parts.scale, whole.scale)
