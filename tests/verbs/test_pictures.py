"""Pictures and plots show the publishers' frames and numbers."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from dataclasses import replace
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import av
import gymnasium
import numpy as np
import pytest
from PIL import Image, ImageSequence

import datasets_cli
from datasets_cli import RldsError
from datasets_cli.cli import state
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import NoRewards, UsageError, install_extra
from datasets_cli.verbs.plot_values import LARGEST
from tests.support.conformance import case_of
from tests.support.disks import Disks
from tests.support.mixture_members import rows_of, write
from tests.support.paths import DEMO_DATA
from tests.support.refusals import refused
from tests.support.terminals import in_terminal

PONG = "demo/pong"
LENGTHS = (4, 1, 6, 3)


@pytest.fixture(params=["compact", "ted"])
def pong(request: pytest.FixtureRequest, config: Config) -> str:
    datasets_cli.download(PONG, layout=request.param, config=config)
    return PONG


def published() -> np.ndarray:
    """Return the frames of the first trajectory, which an independent reader finds."""
    return case_of("atari_dqn").expected().leaves["observation",][:962]


def in_gif(path: Path, mode: str) -> np.ndarray:
    with Image.open(path) as image:
        return np.stack([np.asarray(each.convert(mode)) for each in ImageSequence.Iterator(image)])


def with_rows(config: Config, name: str, columns: dict[tuple[str, ...], Any], **known: Any) -> str:
    rows = rows_of(0, LENGTHS) | columns
    write(config.root / "datasets" / "test" / name, rows, "ted", **known)
    return f"test/{name}"


def block_spec() -> str:
    """Return the environment's specification as JSON, as a recording has it."""
    if "SlidingBlock-v0" not in gymnasium.registry:
        gymnasium.register("SlidingBlock-v0", f"{__name__}:SlidingBlock")
    return gymnasium.spec("SlidingBlock-v0").to_json()


class SlidingBlock(gymnasium.Env):
    """Shows qpos as the red, qvel as the green of each pixel."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 25}  # noqa: RUF012 - gymnasium's
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.shown = np.zeros(3)
        return np.zeros(2, np.float32), {}

    def set_state(self, qpos: np.ndarray, qvel: np.ndarray) -> None:
        assert qpos.shape == qvel.shape == (1,)
        self.shown = np.array([*qpos, *qvel, 0])

    def render(self) -> np.ndarray:
        return np.broadcast_to(self.shown, (20, 31, 3)).astype(np.uint8)


def with_states(config: Config) -> str:
    states = {
        ("info", "qpos"): np.arange(14.0)[:, None] * 10,
        ("info", "qvel"): np.arange(14.0)[:, None] + 100,
    }
    return with_rows(config, "block", states, env_spec=block_spec())


def test_a_gif_of_grey_frames_is_the_published_ones_bit_for_bit(pong: str, tmp_path: Path) -> None:
    made = datasets_cli.render(pong, trajectory=0, out=tmp_path / "pong.gif")
    assert (made.num_frames, made.source, made.notes) == (962, (("observation",),), ())
    np.testing.assert_array_equal(in_gif(made.path, "L"), published())
    with Image.open(made.path) as image:
        assert (image.info["duration"], image.info["loop"]) == (50, 0)


def test_a_video_has_the_same_frames_in_their_order(config: Config, tmp_path: Path) -> None:
    datasets_cli.download(PONG, config=config)
    made = datasets_cli.render(PONG, trajectory=0, out=tmp_path / "pong.mp4", fps=30)
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
        ({"size": 2}, None),
    ],
)
def test_states_that_cannot_be_shown_are_refused(
    change: dict[str, Any], expected: str | None, config: Config, tmp_path: Path
) -> None:
    size = change.pop("size", 1)
    spec = change.get("env_spec", json.dumps(json.loads(block_spec()) | change))
    states = {("info", name): np.zeros((14, size)) for name in ("qpos", "qvel")}
    id = with_rows(config, "changed", states, **{"env_spec": spec} if spec else {})
    with refused(UsageError, id=id, expected=expected):
        datasets_cli.render(id, trajectory=0, out=tmp_path / "block.gif")
    assert not [*tmp_path.glob("block*")]


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


DOOR = "demo/door-minari"


@pytest.fixture
def door_minari(config: Config) -> str:
    datasets_cli.download(DOOR, config=config)
    return DOOR


def published_columns(*key: str) -> list[np.ndarray]:
    """Return the rows of a column of each trajectory, which an independent reader finds."""
    expected = case_of("minari").expected()
    return np.split(expected.leaves[key], expected.offsets[1:-1])


def test_bars_count_the_returns_and_rewards_of_the_published_file(door_minari: str) -> None:
    rewards = published_columns("next", "reward")
    for kind, values in (
        ("returns", [each.sum() for each in rewards]),
        ("reward", np.concatenate(rewards)),
    ):
        (series,) = datasets_cli.plot(door_minari, kind=kind).series
        edges = [series.x[0] - 1e-9, *series.x[1:-1], series.x[-1] + 1e-9]  # sums differ
        np.testing.assert_array_equal(series.counts, np.histogram(values, edges)[0])
        assert (series.x[0], series.x[-1]) == pytest.approx((np.min(values), np.max(values)))
        assert sum(series.counts) == len(values)


def test_lengths_and_ends_are_those_of_the_published_file(door_minari: str) -> None:
    chart = datasets_cli.plot(door_minari, kind="lengths")
    lengths = [len(each) for each in published_columns("next", "reward")]
    assert (chart.labels, chart.series[0].counts) == (("300",), (lengths.count(300),))
    ends = datasets_cli.plot(door_minari, kind="ends")
    assert dict(zip(ends.labels, ends.series[0].counts, strict=True)) == {
        "terminated": sum(each[-1] for each in published_columns("next", "terminated")),
        "truncated": sum(each[-1] for each in published_columns("next", "truncated")),
        "both": 0,
        "neither": 0,
    }


def test_the_spread_of_each_number_of_actions_and_observations_is_numpys(door_minari: str) -> None:
    for kind, key in (("actions", "action"), ("observations", "observation")):
        rows = published_columns(key)
        (series,) = datasets_cli.plot(door_minari, kind=kind).series
        expected = np.quantile(np.concatenate(rows).astype(float), (0, 0.1, 0.5, 0.9, 1), axis=0)
        np.testing.assert_allclose(np.transpose(series.quantiles), expected)
        assert series.x == tuple(range(expected.shape[1]))


def test_an_action_of_one_whole_number_has_a_bar_for_each_value(config: Config) -> None:
    datasets_cli.download("demo/iris", config=config)
    chart = datasets_cli.plot("demo/iris", kind="actions")
    text = (DEMO_DATA / "openml/data/v1/download/61/iris.arff").read_text().partition("@DATA")[2]
    names = [row.rpartition(",")[2] for row in text.split() if "," in row]
    assert chart.series[0].counts == tuple(Counter(names).values()) and len(names) == 150
    assert chart.labels == ("0", "1", "2")


def test_of_two_datasets_bars_are_shares_over_the_same_edges(
    config: Config, tmp_path: Path
) -> None:
    datasets_cli.download(["demo/door-minari", "demo/door-human"], config=config)
    chart = datasets_cli.plot(
        "demo/door-minari", "demo/door-human", kind="reward", out=tmp_path / "two.svg"
    )
    first, second = chart.series
    assert first.x == second.x and chart.y == "% of transitions"
    for place in range(2):
        assert sum(height for _, _, height in chart.bars(place)) == pytest.approx(100)
    text = (tmp_path / "two.svg").read_text()
    assert "demo/door-minari" in text and "demo/door-human" in text


def test_a_picture_has_no_background_and_is_the_same_again(config: Config, tmp_path: Path) -> None:
    datasets_cli.download("demo/iris", config=config)
    for name in ("a.svg", "b.svg", "a.png"):
        datasets_cli.plot("demo/iris", kind="observations", out=tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    with Image.open(tmp_path / "a.png") as image:
        assert image.size == (1050, 600) and image.getpixel((2, 2))[3] == 0
    assert sorted(path.name for path in tmp_path.glob("*.*")) == ["a.png", "a.svg", "b.svg"]


def test_ten_thousand_numbers_are_joined_and_that_is_said(config: Config, tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(sum(LENGTHS), 10_000))
    id = with_rows(config, "wide", {("observation",): values, ("next", "observation"): values})
    chart = datasets_cli.plot(id, kind="observations", out=tmp_path / "wide.svg")
    (series,) = chart.series
    low = values.reshape(-1, 250, 40).min((0, 2))
    np.testing.assert_array_equal([each[0] for each in series.quantiles], low)
    assert chart.notes == ("10,000 numbers are joined by 40: all of them, the first one's median",)
    drawn = ElementTree.parse(tmp_path / "wide.svg").iter()
    paths = [element.get("d", "") for element in drawn if element.tag.endswith("path")]
    assert 500 < sum(len(re.findall("[MLQC]", path)) for path in paths) < 20_000


def test_what_is_not_finite_is_left_out_and_said(config: Config) -> None:
    rewards = np.arange(14.0)[:, None]
    rewards[[1, 6], 0] = np.nan, np.inf
    id = with_rows(config, "gaps", {("next", "reward"): rewards})
    chart = datasets_cli.plot(id, kind="reward")
    assert sum(chart.series[0].counts) == 12
    assert chart.notes == (f"{id}: 2 of 14 values are not finite",)


def test_lengths_are_plotted_where_there_are_no_rewards(config: Config) -> None:
    id = with_rows(config, "none", {})
    datasets_cli.create_dataset(
        "mine/none", {"observation": np.zeros((5, 2)), "action": np.zeros(5)}, lengths=[2, 3]
    )
    alone, both = datasets_cli.plot("mine/none"), datasets_cli.plot(id, "mine/none")
    assert (alone.kind, both.kind, datasets_cli.plot(id).kind) == ("lengths", "lengths", "returns")
    assert "mine/none" in alone.notes[0]
    with refused(NoRewards, key=("next", "reward")):
        datasets_cli.plot("mine/none", kind="returns")


@pytest.mark.parametrize("kind", ["reward", "observations"])
def test_the_largest_numbers_are_too_large_to_plot(
    kind: str, config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    large = np.full((sum(LENGTHS), 1), 1e308)
    large[::2, 0] = -1e308
    id = with_rows(config, "large", {("next", "reward"): large, ("observation",): large})
    with refused(UsageError, expected=LARGEST):
        datasets_cli.plot(id, kind=kind)  # type: ignore[arg-type]
    assert main(["stats", id]) == 0
    assert "observation: - stands for values beyond" in capsys.readouterr().out


def test_an_output_of_ascii_gets_ascii_and_one_dataset_is_drawn_once(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = with_rows(config, "twice", {})
    chart, stream = datasets_cli.plot(id, id), BytesIO()
    assert chart.notes == (f"both are {id}, which is drawn once",)
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(stream, encoding="ascii"))
    state.write("\n".join(chart.lines(80)))
    assert b"###" in stream.getvalue() and b"?" not in stream.getvalue()


@pytest.mark.parametrize("kind", ["returns", "reward", "observations"])
def test_nothing_but_nan_is_refused(kind: str, config: Config, tmp_path: Path) -> None:
    empty = np.full((sum(LENGTHS), 1), np.nan)
    id = with_rows(config, "nan", {("next", "reward"): empty, ("observation",): empty})
    with refused(UsageError, argument="kind", id=id, found=kind):
        datasets_cli.plot(id, kind=kind, out=tmp_path / "nan.png")  # type: ignore[arg-type]
    assert not [*tmp_path.glob("nan*")]


def test_constant_columns_and_one_trajectory_are_one_bar(config: Config, tmp_path: Path) -> None:
    rows = {key: each[:4] for key, each in rows_of(0, LENGTHS).items()}
    rows[("next", "reward")] = np.full((4, 1), 0.3)
    write(config.root / "datasets" / "test" / "one", rows)
    for kind in ("returns", "lengths", "reward", "actions", "observations", "ends"):
        is_drawn = kind in ("returns", "observations")  # bars and spreads
        out = tmp_path / f"{kind}.png" if is_drawn else None
        chart = datasets_cli.plot("test/one", kind=kind, out=out)
        assert max(map(len, chart.lines(40))) <= 40
    assert datasets_cli.plot("test/one", kind="reward").series[0].counts == (4,)


def test_a_dataset_without_numbers_to_plot_is_told_what_to_do(config: Config) -> None:
    rows = rows_of(0, LENGTHS)
    del rows[("observation",)], rows[("next", "observation")]
    write(config.root / "datasets" / "test" / "none", rows, "ted")
    datasets_cli.download("demo/pong", config=config)
    for id, said in (("test/none", "no column observation"), ("demo/pong", "observation uint8")):
        with pytest.raises(UsageError, match=said):
            datasets_cli.plot(id, kind="observations")


@pytest.mark.parametrize(
    ("arguments", "attributes"),
    [
        ({"kind": "colours"}, {"argument": "kind", "found": "colours"}),
        ({"out": "plot.jpg"}, {"argument": "out", "expected": ".png or .svg"}),
        ({"out": "there.png"}, {"argument": "out", "path": Path("there.png")}),
        ({"out": "there.png/plot.png"}, {"found": "Not a directory"}),
    ],
)
def test_wrong_calls_are_told_before_any_work(
    arguments: dict[str, Any],
    attributes: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.png").write_text("mine")
    with refused(UsageError, **attributes):
        datasets_cli.plot("d4rl/not-there", **arguments)
    assert Path("there.png").read_text() == "mine"


def test_an_extra_that_is_missing_is_named(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets_cli.download("demo/iris", config=config)
    chart = datasets_cli.plot("demo/iris")
    for name in ("matplotlib", "plotext"):
        monkeypatch.setitem(sys.modules, name, None)
    with refused(UsageError, expected="matplotlib", advice=install_extra("plot")):
        datasets_cli.plot("demo/iris", out=tmp_path / "x.png")
    with refused(UsageError, expected="plotext", advice=install_extra("plot")):
        chart.lines(80)


def test_a_full_disk_is_told_and_leaves_the_older_file(
    config: Config, tmp_path: Path, disks: Disks, capsys: pytest.CaptureFixture[str]
) -> None:
    datasets_cli.download("demo/iris", config=config)
    disks.put(tmp_path / "small", 40_960)
    (tmp_path / "small" / "x.png").write_bytes(bytes(36_000))
    assert main(["plot", "demo/iris", "--out", str(tmp_path / "small/x.png"), "--force"]) == 7
    assert "disk is full" in capsys.readouterr().err
    assert [path.stat().st_size for path in (tmp_path / "small").iterdir()] == [36_000]


def test_a_pipe_takes_numbers_and_no_drawing(
    config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    datasets_cli.download("demo/iris", config=config)
    assert main(["plot", "demo/iris"]) == 2
    assert "--out FILE.png" in capsys.readouterr().err
    assert main(["plot", "nope"]) == 3
    assert main(["plot", "demo/iris", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["series"] == [
        {"id": "demo/iris", "x": [0.5, 1.5], "counts": [150], "quantiles": None}
    ]


@pytest.mark.parametrize(
    ("kind", "columns", "terminal"), [("observations", 40, "xterm"), ("ends", 120, "dumb")]
)
def test_a_plot_fits_the_terminal_and_a_dumb_one_gets_no_codes(
    kind: str, columns: int, terminal: str, config: Config
) -> None:
    datasets_cli.download(["demo/door-human", "demo/door-minari"], config=config)
    command = ["plot", "demo/door-human", "demo/door-minari", "--kind", kind]
    screen = in_terminal(command, columns=columns, TERM=terminal)
    assert screen.code == 0 and max(map(len, screen.lines)) <= columns
    assert ("\x1b" in screen.raw) == (terminal == "xterm")
    assert "░ demo/door-human" in screen.lines and "▚ demo/door-minari" in screen.lines


def test_no_name_of_a_dataset_is_a_formula(config: Config, tmp_path: Path) -> None:
    chart = replace(datasets_cli.plot(with_rows(config, "plain", {})), x="$\\frac{1}$ <b>")
    from datasets_cli.verbs.plot import draw_file

    draw_file(chart, tmp_path / "odd.svg", "svg")
    texts = [each.text for each in ElementTree.parse(tmp_path / "odd.svg").iter()]
    assert "$\\frac{1}$ <b>" in texts
