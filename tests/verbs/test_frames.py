"""A trajectory's pictures: read back by Pillow and PyAV, they are the frames of the publisher."""

from __future__ import annotations

import gzip
import json
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image, ImageSequence

import datasets_cli
from datasets_cli import RldsError
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import UsageError, install_extra
from tests.support.disks import Disks
from tests.support.mixture_members import rows_of, write
from tests.support.paths import DEMO_DATA
from tests.support.refusals import refused
from tests.support.state_env import block_spec

PONG = "demo/pong"
LENGTHS = (4, 1, 6, 3)


@pytest.fixture(params=["compact", "ted"])
def pong(request: pytest.FixtureRequest, config: Config) -> str:
    datasets_cli.download(PONG, layout=request.param, config=config)
    return PONG


def published() -> np.ndarray:
    """Return the frames of the first trajectory; three that fill the first stack come before."""
    logs = DEMO_DATA / "atari_dqn/Pong/5/replay_logs"
    files = [logs / f"$store$_observation_ckpt.{number}.gz" for number in range(3)]
    parts = [np.load(BytesIO(gzip.decompress(file.read_bytes()))) for file in files]
    frames = np.concatenate(parts)
    for number in (1, 2):  # the step at which a log was saved is in the following one
        frames[400 * number - 1] = parts[number][399]
    return frames[3:965]


def in_gif(path: Path, mode: str) -> np.ndarray:
    with Image.open(path) as image:
        return np.stack([np.asarray(each.convert(mode)) for each in ImageSequence.Iterator(image)])


def with_rows(config: Config, name: str, columns: dict[tuple[str, ...], Any], **known: Any) -> str:
    rows = rows_of(0, LENGTHS) | columns
    write(config.root / "datasets" / "test" / name, rows, "ted", **known)
    return f"test/{name}"


def with_states(config: Config, name: str = "block") -> str:
    states = {
        ("info", "qpos"): np.arange(14.0)[:, None] * 10,
        ("info", "qvel"): np.arange(14.0)[:, None] + 100,
    }
    return with_rows(config, name, states, env_spec=block_spec())


def test_a_gif_of_grey_frames_is_the_published_ones_bit_for_bit(pong: str, tmp_path: Path) -> None:
    made = datasets_cli.render(pong, trajectory=0, out=tmp_path / "pong.gif")
    assert (made.num_frames, made.source, made.notes) == (962, (("observation",),), ())
    np.testing.assert_array_equal(in_gif(made.path, "L"), published())
    with Image.open(made.path) as image:
        assert (image.info["duration"], image.info["loop"]) == (50, 0)


def test_a_video_has_the_same_frames_in_their_order(pong: str, tmp_path: Path) -> None:
    made = datasets_cli.render(pong, trajectory=0, out=tmp_path / "pong.mp4", fps=30)
    with av.open(str(made.path)) as container:
        assert container.streams.video[0].average_rate == 30
        shown = np.stack([each.to_ndarray(format="gray") for each in container.decode(video=0)])
    expected = published()
    differences = np.abs(shown.astype(int) - expected).mean((1, 2))
    assert shown.shape == expected.shape and differences.max() <= 2


def test_a_sheet_has_frames_of_the_whole_trajectory(config: Config, tmp_path: Path) -> None:
    datasets_cli.download(PONG, config=config)
    made = datasets_cli.render(PONG, trajectory=0, out=tmp_path / "pong.png")
    assert made.notes == ("they are of 962 rows, evenly spaced",)
    with Image.open(made.path) as image:
        sheet = np.asarray(image)
    assert sheet.shape == (8 * 86 - 2, 8 * 86 - 2)
    frames = published()
    np.testing.assert_array_equal(sheet[:84, :84], frames[0])
    np.testing.assert_array_equal(sheet[-84:, -84:], frames[961])
    np.testing.assert_array_equal(sheet[86:170, :84], frames[round(8 * 961 / 63)])


@pytest.mark.parametrize("num_colours", [256, 5000])
def test_colours_are_exact_in_a_gif_up_to_256_of_them(
    num_colours: int, config: Config, tmp_path: Path
) -> None:
    generator = np.random.default_rng(0)
    colours = generator.integers(0, 256, (num_colours, 3), np.uint8)
    frames = colours[generator.integers(0, num_colours, (14, 30, 20))]
    id = with_rows(config, "colours", {("pixels",): frames})
    made = datasets_cli.render(id, trajectory=2, out=tmp_path / "colours.gif")
    shown = in_gif(made.path, "RGB")
    assert shown.shape == (6, 30, 20, 3)
    assert np.array_equal(shown, frames[5:11]) == (made.notes == ()) == (num_colours == 256)


@pytest.mark.parametrize(
    ("shape", "shown"),
    [((3, 40, 30), None), ((1, 40, 30), 0), ((4, 40, 30), 3), ((40, 30, 4), (..., 3))],
)
def test_channels_and_stacks_stand_first_or_last(
    shape: tuple[int, ...], shown: Any, config: Config, tmp_path: Path
) -> None:
    frames = np.random.default_rng(0).integers(0, 8, (14, *shape), np.uint8)
    id = with_rows(config, "shaped", {("pixels",): frames})
    made = datasets_cli.render(id, trajectory=1, out=tmp_path / "shaped.png")
    expected = np.moveaxis(frames[4], 0, 2) if shown is None else frames[4][shown]
    with Image.open(made.path) as image:
        np.testing.assert_array_equal(np.asarray(image), expected)
    assert bool(made.notes) == (4 in shape), "a stack is told"


def test_a_video_of_odd_size_keeps_it(config: Config, tmp_path: Path) -> None:
    ramp = np.arange(33 * 35 * 3, dtype=np.uint32).reshape(33, 35, 3) * 255 // (33 * 35 * 3)
    frames = np.broadcast_to(ramp.astype(np.uint8), (14, 33, 35, 3))
    id = with_rows(config, "odd", {("pixels",): np.ascontiguousarray(frames)})
    made = datasets_cli.render(id, trajectory=0, out=tmp_path / "odd.mp4")
    with av.open(str(made.path)) as container:
        shown = np.stack([each.to_ndarray(format="rgb24") for each in container.decode(video=0)])
    assert shown.shape == (4, 33, 35, 3) and np.abs(shown.astype(int) - frames[:4]).mean() <= 2


def test_without_frames_the_environment_shows_the_recorded_states(
    config: Config, tmp_path: Path
) -> None:
    made = datasets_cli.render(with_states(config), trajectory=2, out=tmp_path / "block.gif")
    assert (made.source, made.fps) == ((("info", "qpos"), ("info", "qvel")), 25)
    shown = in_gif(made.path, "RGB")
    assert shown.shape == (6, 20, 31, 3), "rows 5 to 10"
    np.testing.assert_array_equal(shown[:, 0, 0, 0], np.arange(5, 11) * 10)
    np.testing.assert_array_equal(shown[:, 0, 0, 1], np.arange(5, 11) + 100)
    assert made.notes[0].startswith("the environment is set to each info.qpos and info.qvel")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"env_spec": None}, "env_spec"),
        ({"entry_point": "not_installed.envs:Arm"}, None),
        (
            {"entry_point": "gymnasium.envs.classic_control:CartPoleEnv"},
            "set_state(qpos, qvel)",
        ),
    ],
)
def test_states_that_cannot_be_shown_are_refused(
    change: dict[str, Any], expected: str | None, config: Config, tmp_path: Path
) -> None:
    spec = change.get("env_spec", json.dumps(json.loads(block_spec()) | change))
    states = {("info", name): np.zeros((14, 1)) for name in ("qpos", "qvel")}
    id = with_rows(config, "changed", states, **{"env_spec": spec} if spec else {})
    with refused(UsageError, id=id, expected=expected):
        datasets_cli.render(id, trajectory=0, out=tmp_path / "block.gif")
    assert not [*tmp_path.glob("block*")]


def test_states_of_another_size_are_refused(config: Config, tmp_path: Path) -> None:
    states = {("info", name): np.zeros((14, 2)) for name in ("qpos", "qvel")}
    id = with_rows(config, "wide", states, env_spec=block_spec())
    with pytest.raises(UsageError) as caught:
        datasets_cli.render(id, trajectory=0, out=tmp_path / "block.gif")
    assert caught.value.id == "test/wide"


def test_a_column_of_small_pictures_is_named_in_the_error(config: Config, tmp_path: Path) -> None:
    id = with_rows(config, "small", {("rgb",): np.zeros((14, 5, 7, 3), np.uint8)})
    with pytest.raises(UsageError) as caught:
        datasets_cli.render(id, trajectory=0, out=tmp_path / "rgb.gif")
    assert caught.value.expected == "env_spec"
    made = datasets_cli.render(id, trajectory=0, columns="rgb", out=tmp_path / "rgb.gif")
    assert made.to_json()["source"] == [["rgb"]]


@pytest.mark.parametrize("out", ["none/x.gif", f"{'x' * 300}.gif", "/proc/x.gif"])
def test_a_file_that_cannot_be_made_is_refused_first(out: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot be created|too long") as refused:
        datasets_cli.render("demo/none", trajectory=0, out=tmp_path / out)
    assert (not [*tmp_path.iterdir()] and "Check its folder" in str(refused.value)) or "xxx" in out


def test_actions_are_not_replayed(config: Config, tmp_path: Path) -> None:
    datasets_cli.download("demo/door-minari", config=config)
    with refused(UsageError, expected="qpos and qvel"):
        datasets_cli.render("demo/door-minari", trajectory=0, out=tmp_path / "door.gif")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"trajectory": 2}, range(2)),
        ({"trajectory": -1}, "0 or more"),
        ({"out": "pong.webm"}, ".gif, .png or .mp4"),
        ({"out": "there.gif"}, None),
        ({"columns": "action"}, "next.observation, observation"),
        ({"fps": 0}, "1 or more"),
        ({"fps": 60}, 50),
    ],
)
def test_wrong_calls_write_nothing(
    arguments: dict[str, Any],
    expected: object,
    config: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    datasets_cli.download(PONG, config=config)
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path / "out")
    Path("there.gif").write_text("mine")
    (argument,) = arguments
    with refused(UsageError, argument=argument, expected=expected):
        datasets_cli.render(PONG, **{"trajectory": 0, "out": "pong.gif", **arguments})
    assert [path.read_text() for path in Path().iterdir()] == ["mine"]


def test_a_missing_package_is_named(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets_cli.download(PONG, config=config)
    monkeypatch.setitem(sys.modules, "av", None)
    with refused(UsageError, expected="av", advice=install_extra("video")):
        datasets_cli.render(PONG, trajectory=1, out=tmp_path / "pong.mp4")
    assert not [*tmp_path.glob("*pong.mp4*")]


@pytest.mark.parametrize("name", ["pong.gif", "pong.mp4", "pong.png"])
def test_a_full_disk_is_told_and_nothing_is_left(
    name: str, config: Config, tmp_path: Path, disks: Disks
) -> None:
    datasets_cli.download(PONG, config=config)
    disks.put(tmp_path / "small", 4096)
    with pytest.raises(RldsError) as caught:
        datasets_cli.render(PONG, trajectory=0, out=tmp_path / "small" / name)
    assert caught.value.exit_code == 7 and not [*(tmp_path / "small").iterdir()]


def test_the_command_prints_the_path_and_says_what_is_in_it(
    config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    datasets_cli.download(PONG, config=config)
    out = str(tmp_path / "pong.png")
    assert main(["render", PONG, "--trajectory", "1", "--out", out]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err.splitlines()[-1]) == (f"{out}\n", "37 pictures")
