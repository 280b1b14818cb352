"""Plots show the numbers of the published files, read by h5py and numpy alone."""

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

import h5py
import numpy as np
import pytest
from PIL import Image

import datasets_cli
from datasets_cli.cli import state
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import UsageError, install_extra
from datasets_cli.verbs.plot_values import LARGEST
from tests.support.disks import Disks
from tests.support.mixture_members import rows_of, write
from tests.support.paths import DEMO_DATA
from tests.support.refusals import refused
from tests.support.terminals import in_terminal

DOOR = "demo/door-minari"
LENGTHS = (4, 1, 6, 3)


@pytest.fixture(params=["ted", "compact"])
def door_minari(request: pytest.FixtureRequest, config: Config) -> str:
    datasets_cli.download(DOOR, layout=request.param, config=config)
    return DOOR


def published(name: str) -> list[np.ndarray]:
    with h5py.File(DEMO_DATA / "minari/D4RL/door/human-v2/data/main_data.hdf5") as file:
        return [group[name][:] for group in file.values()]


def made(config: Config, name: str, columns: dict[tuple[str, ...], np.ndarray]) -> str:
    """Return the id of an installed dataset with other columns than ``rows_of`` gives."""
    write(config.root / "datasets" / "test" / name, rows_of(0, LENGTHS) | columns)
    return f"test/{name}"


def test_bars_count_the_returns_and_rewards_of_the_published_file(door_minari: str) -> None:
    rewards = published("rewards")
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
    lengths = [len(each) for each in published("rewards")]
    assert (chart.labels, chart.series[0].counts) == (("300",), (lengths.count(300),))
    ends = datasets_cli.plot(door_minari, kind="ends")
    assert dict(zip(ends.labels, ends.series[0].counts, strict=True)) == {
        "terminated": sum(each[-1] for each in published("terminations")),
        "truncated": sum(each[-1] for each in published("truncations")),
        "both": 0,
        "neither": 0,
    }


def test_the_spread_of_each_number_of_actions_and_observations_is_numpys(door_minari: str) -> None:
    observations = [each[:-1] for each in published("observations")]
    for kind, rows in (("actions", published("actions")), ("observations", observations)):
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
    id = made(config, "wide", {("observation",): values, ("next", "observation"): values})
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
    id = made(config, "gaps", {("next", "reward"): rewards})
    chart = datasets_cli.plot(id, kind="reward")
    assert sum(chart.series[0].counts) == 12
    assert chart.notes == (f"{id}: 2 of 14 values are not finite",)


@pytest.mark.parametrize("kind", ["reward", "observations"])
def test_the_largest_numbers_are_too_large_to_plot(
    kind: str, config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    large = np.full((sum(LENGTHS), 1), 1e308)
    large[::2, 0] = -1e308
    id = made(config, "large", {("next", "reward"): large, ("observation",): large})
    with refused(UsageError, expected=LARGEST):
        datasets_cli.plot(id, kind=kind)  # type: ignore[arg-type]
    assert main(["stats", id]) == 0
    assert "observation: - stands for values beyond" in capsys.readouterr().out


def test_an_output_of_ascii_gets_ascii_and_one_dataset_is_drawn_once(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = made(config, "twice", {})
    chart, stream = datasets_cli.plot(id, id), BytesIO()
    assert chart.notes == (f"both are {id}, which is drawn once",)
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(stream, encoding="ascii"))
    state.write("\n".join(chart.lines(80)))
    assert b"###" in stream.getvalue() and b"?" not in stream.getvalue()


@pytest.mark.parametrize("kind", ["returns", "reward", "observations"])
def test_nothing_but_nan_is_refused(kind: str, config: Config, tmp_path: Path) -> None:
    empty = np.full((sum(LENGTHS), 1), np.nan)
    id = made(config, "nan", {("next", "reward"): empty, ("observation",): empty})
    with refused(UsageError, argument="kind", id=id, found=kind):
        datasets_cli.plot(id, kind=kind, out=tmp_path / "nan.png")  # type: ignore[arg-type]
    assert not [*tmp_path.glob("nan*")]


def test_constant_columns_and_one_trajectory_are_one_bar(config: Config, tmp_path: Path) -> None:
    rows = {key: each[:4] for key, each in rows_of(0, LENGTHS).items()}
    rows[("next", "reward")] = np.full((4, 1), 0.3)
    write(config.root / "datasets" / "test" / "one", rows)
    for kind in ("returns", "lengths", "reward", "actions", "observations", "ends"):
        chart = datasets_cli.plot("test/one", kind=kind, out=tmp_path / f"{kind}.png")
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


@pytest.mark.parametrize("columns", [40, 120])
def test_a_plot_fits_the_terminal_and_a_dumb_one_gets_no_codes(
    columns: int, config: Config
) -> None:
    datasets_cli.download(["demo/door-human", "demo/door-minari"], config=config)
    for kind in ("observations", "ends"):
        command = ["plot", "demo/door-human", "demo/door-minari", "--kind", kind]
        screen = in_terminal(command, columns=columns, TERM="dumb" if kind == "ends" else "xterm")
        assert screen.code == 0 and max(map(len, screen.lines)) <= columns
        assert ("\x1b" in screen.raw) == (kind != "ends")
        assert "░ demo/door-human" in screen.lines and "▚ demo/door-minari" in screen.lines


def test_no_name_of_a_dataset_is_a_formula(config: Config, tmp_path: Path) -> None:
    chart = replace(datasets_cli.plot(made(config, "plain", {})), x="$\\frac{1}$ <b>")
    from datasets_cli.verbs.plot import draw_file

    draw_file(chart, tmp_path / "odd.svg", "svg")
    texts = [each.text for each in ElementTree.parse(tmp_path / "odd.svg").iter()]
    assert "$\\frac{1}$ <b>" in texts
