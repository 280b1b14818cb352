"""Rows that are shown, against the publishers' files read by h5py, numpy and plain loops alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from typing import Any

import h5py
import numpy as np
import pytest
import torch

import datasets_cli
from datasets_cli import peek
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import (
    DamagedDataset,
    DatasetNotInstalled,
    UnknownDataset,
    UsageError,
)
from tests.cli.test_screens import on_terminal
from tests.recipes import test_unplugged_real as asterix
from tests.support import element_types, text_rows
from tests.support.conformance import case_of
from tests.support.interpreters import imported_by_commands
from tests.support.minari_files import changing_texts
from tests.support.minari_values import texts_by_h5py
from tests.support.refusals import check_refused
from tests.support.unplugged_records import read_run
from tests.support.values import Key, assert_same

Capture = pytest.CaptureFixture[str]

FAMILIES = {
    "demo/door-human": "d4rl",
    "demo/door-minari": "minari",
    "demo/iris": "openml",
    "demo/pong": "atari_dqn",
}
both_layouts = pytest.mark.parametrize("layout", ["ted", "compact"])


def compare(id: str, leaves: dict[Key, np.ndarray], offsets: list[int], **more: Any) -> None:
    """Compare the first rows, those around an end of a trajectory, and the last with the files."""
    num_rows = offsets[-1]
    for start in (0, max(0, offsets[1] - 3), num_rows - 2):
        peeked = peek(id, n=6, start=start, **more)
        rows = slice(start, min(start + 6, num_rows))
        numbers = np.searchsorted(offsets, np.arange(num_rows)[rows], side="right") - 1
        assert (peeked.start, peeked.num_transitions) == (start, num_rows)
        assert peeked.trajectories == tuple(numbers)
        found = {each.key: each.values for each in peeked.columns if each.dtype != "text"}
        assert_same(found, {key: values[rows] for key, values in leaves.items()})


def install_rows(config: Config, layout: str, steps: dict[Key, np.ndarray]) -> str:
    folder = config.root / "datasets" / text_rows.ID
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(text_rows.write(config.root, layout, steps), folder)
    return text_rows.ID


def shown(capsys: Capture, *arguments: str) -> list[str]:
    assert main(["peek", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


# Values


@both_layouts
@pytest.mark.parametrize("id", FAMILIES)
def test_rows_of_every_demo_are_those_of_its_file(id: str, layout: str, config: Config) -> None:
    datasets_cli.download(id, layout=layout, config=config)
    expected = case_of(FAMILIES[id]).expected()
    compare(id, dict(expected.leaves), expected.offsets)


@both_layouts
def test_rows_of_a_real_record_of_rl_unplugged_are_the_files(layout: str, config: Config) -> None:
    dataset = asterix.install(config, layout)
    folder = config.root / "datasets" / dataset.id
    folder.parent.mkdir(parents=True)
    shutil.move(dataset.folder, folder)
    compare(dataset.id, asterix.expected(read_run(asterix.ASTERIX)), [0, 310, 554])


@both_layouts
def test_text_is_the_files(layout: str, config: Config) -> None:
    folder = changing_texts()
    id = "minari/my/texts-v0"
    datasets_cli.download(id, source=folder, layout=layout, config=config)
    wanted = texts_by_h5py(folder)
    peeked = peek(id, n=4, start=3)
    found = {each.key: each.values for each in peeked.columns if each.dtype == "text"}
    assert found == {key: values[3:7] for key, values in wanted.items()} and wanted


@both_layouts
def test_a_trajectory_has_the_rows_of_its_group(layout: str, config: Config) -> None:
    datasets_cli.download("demo/door-minari", layout=layout, config=config)
    with h5py.File(case_of("minari").folder / "main_data.hdf5") as file:
        actions = file["episode_1"]["actions"][:]
    peeked = peek("demo/door-minari", n=1000, start=7, trajectory=1, columns="action")
    [column] = peeked.columns
    assert column.values.tobytes() == actions[7:].tobytes()
    assert {*peeked.trajectories} == {1} and len(peeked.trajectories) == len(actions) - 7


@both_layouts
def test_numbers_that_numpy_lacks_are_torchs(layout: str, config: Config) -> None:
    rows = {
        name: element_types.random_rows(name, (14, 2), np.random.default_rng(0))
        for name in element_types.NUMPY
    }
    id = install_rows(config, layout, text_rows.steps_of(["a"], **rows))
    for name, bits in rows.items():
        [column] = peek(id, n=14, columns=f"observation.{name}").columns
        if isinstance(element_types.NUMPY[name], str):
            assert column.values.tobytes() == bits.tobytes()
        elif name == "float4_e2m1fn_x2":
            assert column.values.tolist() == bits[name].tolist()
        else:
            typed = torch.from_numpy(bits[name].view(f"i{bits.itemsize}").copy())
            wide = typed.view(getattr(torch, name)).to(
                torch.complex64 if "complex" in name else torch.float32
            )
            np.testing.assert_array_equal(column.values, wide.numpy())


# What is shown


def test_the_json_has_every_value_and_is_strict(config: Config, capsys: Capture) -> None:
    values = np.array([[0.1, np.nan, np.inf, -np.inf] * 3] * 14)
    id = install_rows(config, "ted", text_rows.steps_of(["a"], x9=values))
    [line] = ["\n".join(shown(capsys, id, "--columns", "observation.x9", "-n", "1", "--json"))]
    document = json.loads(line, parse_constant=pytest.fail)
    [column] = document["columns"]
    assert column["values"] == [[0.1, "NaN", "Infinity", "-Infinity"] * 3]
    assert document["trajectories"] == [0] and column["shape"] == [12]


def test_a_pipe_has_a_line_a_row_and_says_what_is_not_shown(
    config: Config, capsys: Capture
) -> None:
    datasets_cli.download("demo/pong", config=config)
    assert main(["peek", "demo/pong", "-n", "2"]) == 0
    heading, first, _ = (out := capsys.readouterr()).out.splitlines()
    assert heading.split()[:3] == ["ROW", "TRAJECTORY", "action"]
    assert first.count("uint8 [84, 84]") == 2
    assert "rows 0 to 1 of 999" in out.err and "frames" in out.err and "--json" in out.err


@pytest.mark.parametrize("columns", [40, 80, 2000])
def test_a_narrow_terminal_has_a_line_for_each_column_of_a_row(
    columns: int, config: Config, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets_cli.download("demo/door-minari", config=config)
    capsys.readouterr()
    on_terminal(monkeypatch, columns)
    monkeypatch.setenv("TERM", "dumb")
    lines = shown(capsys, "demo/door-minari", "-n", "2")
    assert max(map(len, lines)) <= columns
    assert ("row 1, trajectory 0" in lines) == (columns < 2000)
    assert len(lines) == 3 or [line.split() for line in lines].count(["done", "False"]) == 2


def test_text_is_escaped_and_cut_and_nothing_moves_the_cursor(
    config: Config, capsys: Capture
) -> None:
    steps = text_rows.steps_of(["\x1b[2Jgone\n", "é" * 300])
    steps["observation", "\x1b[31mred"] = steps.pop(("observation", "x"))
    lines = shown(capsys, install_rows(config, "ted", steps), "-n", "2")
    assert "\x1b" not in "".join(lines) and "observation.\\x1b[31mred" in lines[0]
    assert "'\\x1b[2Jgone\\n'" in lines[1] and f"'{'é' * 58}…" in lines[2]


def test_columns_of_text_alone_are_shown(config: Config, capsys: Capture) -> None:
    id = install_rows(config, "compact", text_rows.steps_of(["left", "right"]))
    lines = shown(capsys, id, "-n", "2", "--columns", "observation.mission")
    assert [line.split()[-1] for line in lines] == ["observation.mission", "'left'", "'right'"]


def test_columns_stand_in_the_order_that_is_asked_for_each_once(door: str) -> None:
    peeked = peek(door, columns=["next", "action", "next.reward"])
    keys = [each.key for each in peeked.columns]
    assert keys[-1] == ("action",) and ("next", "reward") in keys
    assert len(keys) == len({*keys}) and all(key[0] == "next" for key in keys[:-1])


# What is refused


def test_wrong_calls_say_what_is_expected(door: str, config: Config) -> None:
    calls = {
        "n is 0; expected 1 or more": {"n": 0},
        "n is -5; expected 1 or more": {"n": -5},
        "start is 1,495; expected 0 to 1,494": {"start": 1495},
        "start is -1; expected 0 or more": {"start": -1},
        "trajectory is 5; expected 0 to 4: .* has 5 trajectories": {"trajectory": 5},
        "trajectory is -1": {"trajectory": -1},
        "start is 299; expected 0 to 298: trajectory 1 of": {"trajectory": 1, "start": 299},
        r"no column next\.rewrad. Did you mean next\.reward": {"columns": "next.rewrad"},
        "expected names, none empty, each once": {"columns": "action,"},
    }
    lengths = np.diff(np.load(config.root / "datasets" / door / "trajectories.npy"))
    assert lengths.tolist() == [299] * 5
    check_refused(
        UsageError, [(words, partial(peek, door, **call)) for words, call in calls.items()]
    )


@pytest.mark.parametrize("look", [peek, datasets_cli.sample_batch, datasets_cli.dataset_stats])
def test_what_is_not_there_or_damaged_has_its_own_error(
    look: Callable[..., Any], door: str, config: Config
) -> None:
    check_refused(UnknownDataset, [("nosuch is not a known", partial(look, "nosuch"))])
    check_refused(DatasetNotInstalled, [("Run: rlds download", partial(look, "d4rl/pen-human-v0"))])
    (config.root / "datasets" / door / "action.memmap").write_bytes(b"short")
    check_refused(DamagedDataset, [("action.memmap", partial(look, door))])


def test_torch_is_not_imported(config: Config) -> None:
    datasets_cli.download("demo/pong", layout="compact", config=config)
    datasets_cli.download("demo/iris", layout="ted", config=config)
    imported = imported_by_commands("peek demo/pong", "peek demo/iris")
    assert not imported & {"torch", "tensordict", "pandas", "h5py"}
