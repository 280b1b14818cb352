"""Real files of D4RL: every value, and the traps in them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.recipes.d4rl import catalogue
from datasets_cli.recipes.d4rl.traps import STATE_AFTER_THE_STEP, TRAPS, trap_rules, traps_of
from datasets_cli.store.dataset import open_dataset
from tests.support.d4rl_cuts import CUTS, columns
from tests.support.values import assert_folder, assert_same, everything, expect


def install(cut: str, folder: Path, layout: str) -> Path:
    """Convert a cut; return the dataset's folder."""
    source = CUTS[cut].lay_out(folder / "source")
    options = InstallOptions(accept_any=True, layout=layout, source=str(source))
    return install_dataset(f"d4rl/{CUTS[cut].name}", Config(folder / layout), options).path


@pytest.mark.parametrize("cut", CUTS)
def test_every_value_of_a_real_file_is_kept_in_both_layouts(cut: str, tmp_path: Path) -> None:
    expected = expect(columns(cut))
    assert_folder(install(cut, tmp_path, "ted"), expected)
    assert_same(everything(open_dataset(install(cut, tmp_path, "compact"))), expected.leaves)


@pytest.mark.parametrize(
    ("cut", "ends"),
    [
        # Row 199 has a timeout in the middle of the demonstration: its successor is not taken.
        ("door-human-v0", {"offsets": [0, 199, 299], "terminated": [298]}),
        ("halfcheetah-medium-v0", {"offsets": [0, 899, 1897], "terminated": [898]}),
        ("ant-medium-v0", {"offsets": [0, 999, 1998], "terminated": []}),
        # Three rows at the goal: the first one ends the way there, the others are alone.
        ("antmaze-medium-diverse-v0", {"offsets": [0, 65, 66, 67], "terminated": [64, 65, 66]}),
        ("hopper-medium-replay-v1", {"offsets": [0, 40, 49], "terminated": [39, 48]}),
    ],
)
def test_flags_of_a_real_file_are_taken_as_they_are(
    cut: str, ends: dict[str, list[int]], tmp_path: Path
) -> None:
    dataset = open_dataset(install(cut, tmp_path, "ted"))
    terminated = everything(dataset)["next", "terminated"][:, 0]
    assert np.flatnonzero(terminated).tolist() == ends["terminated"]
    assert np.load(dataset.folder / "trajectories.npy").tolist() == ends["offsets"]


def test_a_policy_in_a_real_file_is_named_and_left_out(tmp_path: Path) -> None:
    manifest: dict[str, Any] = json.loads(
        (install("pen-cloned-v1", tmp_path, "ted") / "manifest.json").read_text()
    )
    assert manifest["metadata"]["file_metadata"]["algorithm"] == "DAPG"
    assert "metadata/policy/fc0/weight" in manifest["metadata"]["dropped_fields"]


Capture = pytest.CaptureFixture[str]


def says(name: str, *words: str) -> bool:
    """Tell whether one trap of a dataset has all the words."""
    return any(all(word in text for word in words) for text in traps_of(name))


def ends(cut: str) -> list[int]:
    """Return the rows with a flag."""
    flags = columns(cut)
    return np.flatnonzero((flags["terminals"] != 0) | (flags["timeouts"] != 0)).tolist()


def strides(cut: str, state: str, dimensions: slice = slice(None)) -> np.ndarray:
    """Return how far the state moves from each row to the next, in medians of that."""
    rows = columns(cut)[state][:, dimensions].astype(np.float64)
    moved = np.linalg.norm(np.diff(rows, axis=0), axis=1)
    found: np.ndarray = moved / np.median(moved)
    return found


# Each claim of a trap, on the rows that it names.


@pytest.mark.parametrize(
    ("cut", "row"), [("door-human-v0", 199), ("hammer-cloned-v0", 199), ("pen-human-v0", 99)]
)
def test_the_state_continues_after_a_timeout_of_adroit_v0(cut: str, row: int) -> None:
    assert columns(cut)["timeouts"][row]
    assert strides(cut, "infos/qpos")[row] < 1.5
    assert says(cut, "issue 137", f"row {row} of") and says(cut, cut)


@pytest.mark.parametrize(
    ("cut", "row"), [("door-human-v1", 299), ("pen-cloned-v1", 99), ("relocate-expert-v0", 199)]
)
def test_the_state_jumps_after_a_timeout_of_the_other_adroit_files(cut: str, row: int) -> None:
    assert columns(cut)["timeouts"][row]
    assert strides(cut, "infos/qpos")[row] > 20
    assert traps_of(cut) == []


def test_a_demonstration_of_adroit_v0_ends_in_a_terminal_where_that_of_v1_has_a_timeout() -> None:
    first, second = columns("door-human-v0"), columns("door-human-v1")
    assert np.array_equal(first["observations"], second["observations"][:300])
    assert np.flatnonzero(first["terminals"]).tolist() == [299]
    assert not first["timeouts"][299] and second["timeouts"][299]
    assert not second["terminals"].any()
    assert says("door-human-v0", "row 299 of door-human-v0")


def test_halfcheetah_v0_has_a_terminal_where_its_first_episode_is_cut_off() -> None:
    rows = columns("halfcheetah-medium-v0")
    assert np.flatnonzero(rows["terminals"]).tolist() == [898]
    at_rest = np.flatnonzero(np.abs(rows["observations"]).max(axis=1) < 0.2)
    assert at_rest.tolist() == [0, 899]
    assert np.diff([*at_rest, len(rows["rewards"])]).tolist() == [899, 999]
    assert says("halfcheetah-medium-v0", "row 898 of halfcheetah-medium-v0")


def test_ant_v0_is_reset_where_no_flag_is() -> None:
    observations = columns("ant-medium-v0")["observations"]
    at_rest = np.abs(observations[:, 13:27]).max(axis=1) < 0.6  # the velocities
    upright = observations[:, 1] > 0.97  # the torso's quaternion begins with its cosine
    assert np.flatnonzero(at_rest & upright).tolist() == [0, 211, 1210]
    assert ends("ant-medium-v0") == [999, 1999]
    assert strides("ant-medium-v0", "observations", slice(27))[999] < 1
    assert says("ant-medium-v0", "rows 211 and 1210 of ant-medium-v0", "row 999")


@pytest.mark.parametrize(
    "cut", ["ant-random-v1", "halfcheetah-random-v1", "hopper-medium-replay-v1"]
)
def test_the_simulators_state_stands_still_in_mujoco_v1(cut: str) -> None:
    rows, first = columns(cut), 0
    for last in ends(cut):
        episode = slice(first, last + 1)
        assert len(np.unique(rows["infos/qpos"][episode], axis=0)) == 1
        assert len(np.unique(rows["infos/qvel"][episode], axis=0)) == 1
        assert len(np.unique(rows["observations"][episode], axis=0)) == last + 1 - first > 8
        first = last + 1
    assert first == len(rows["rewards"])
    assert says(cut, "infos/qpos and infos/qvel repeat one value", cut)


@pytest.mark.parametrize(
    ("cut", "state"),
    [("hopper-medium-v2", "observations"), ("hopper-medium-v2, older", "next_observations")],
)
def test_the_older_mujoco_v2_has_the_simulators_state_after_the_step(cut: str, state: str) -> None:
    rows = columns(cut)
    qpos = rows["infos/qpos"][:, 1:].astype(np.float32)
    assert np.array_equal(qpos, rows[state][:, :5])
    assert (qpos.dtype == rows["infos/qpos"].dtype) == (state == "next_observations")
    assert "like next_observations" in STATE_AFTER_THE_STEP


def test_antmaze_v0_has_its_timeouts_before_the_ant_jumps() -> None:
    moved = columns("antmaze-large-play-v0")
    xy = np.linalg.norm(np.diff(moved["observations"][:, :2], axis=0), axis=1)
    assert np.flatnonzero(xy > 1).tolist() == [1000]
    assert np.flatnonzero(np.diff(moved["infos/goal"], axis=0).any(axis=1)).tolist() == [1000]
    assert ends("antmaze-large-play-v0") == [998, 1997]
    assert says("antmaze-large-play-v0", "issue 77 and issue 146", "rows 998 and 1997", "row 1000")


def test_the_timeouts_of_antmaze_umaze_v0_are_right() -> None:
    rows = columns("antmaze-umaze-v0")
    xy = np.linalg.norm(np.diff(rows["observations"][:, :2], axis=0), axis=1)
    assert np.flatnonzero(xy > 1).tolist() == [700]
    assert ends("antmaze-umaze-v0") == [700, 1401]
    assert not says("antmaze-umaze-v0", "timeouts")


def test_the_ant_stays_at_the_goal_of_antmaze() -> None:
    rows = columns("antmaze-medium-diverse-v0")
    assert np.flatnonzero(rows["terminals"]).tolist() == [64, 65, 66]
    assert np.flatnonzero(rows["rewards"]).tolist() == [64, 65, 66]
    xy = np.linalg.norm(np.diff(rows["observations"][:, :2], axis=0), axis=1)
    assert (xy[64:] < 0.5).all()
    assert says("antmaze-medium-diverse-v0", "HIQL", "rows 64 to 66 of antmaze-medium-diverse-v0")


@pytest.mark.parametrize("name", ["hopper-medium-v0", "ant-medium-v2", "hopper-medium-v2"])
def test_a_sound_file_has_no_trap(name: str) -> None:
    assert traps_of(name) == []


@pytest.mark.parametrize("cut", ["ant-medium-v2", "hopper-medium-v2"])
def test_a_sound_file_jumps_after_its_ends_and_nowhere_else(cut: str) -> None:
    rows = columns(cut)
    follows = (rows["next_observations"][:-1] == rows["observations"][1:]).all(axis=1)
    last = len(rows["rewards"]) - 1
    assert np.flatnonzero(~follows).tolist() == [row for row in ends(cut) if row != last]


# Where they are told.


def test_every_trap_has_its_source_and_is_one_of_a_published_dataset() -> None:
    names = [entry.name for entry in catalogue.datasets(None)]
    for trap in TRAPS:
        assert [name for name in names if re.fullmatch(trap.names, name)], trap
        assert re.search(r"issues? \d+|rows? \d+|all rows|own row", trap.text), trap
        for named in re.findall(r"[a-z0-9]+(?:-[a-z]+)+-v\d", trap.text):
            assert named in {cut.name for cut in CUTS.values()}, named


def test_the_catalogue_has_the_traps() -> None:
    known = {entry.name: entry.details.get("known_traps", []) for entry in catalogue.datasets(None)}
    assert known == {name: traps_of(name) for name in known}
    assert sum(map(bool, known.values())) == 90


def shown(capsys: Capture, *arguments: str) -> str:
    capsys.readouterr()
    assert main([*arguments]) == 0
    output = capsys.readouterr()
    return output.out + output.err


@pytest.mark.parametrize("cut", ["door-human-v0", "hopper-medium-v2, older", "hopper-medium-v0"])
def test_a_trap_is_shown_by_info_and_at_install(cut: str, tmp_path: Path, capsys: Capture) -> None:
    name, source = CUTS[cut].name, CUTS[cut].lay_out(tmp_path / "source")
    older = [STATE_AFTER_THE_STEP] if "older" in cut else []
    before = shown(capsys, "info", name)
    told = shown(capsys, "download", name, "--no-verify", "--source", str(source))
    after = shown(capsys, "info", name)
    assert before.count("known trap") == len(traps_of(name))
    assert after.count("known trap") == len(traps_of(name)) + len(older)
    count = after.count("known trap")
    assert (f"{count} known trap" in told) == (f"rlds info d4rl/{name}" in told) == (count > 0)
    for text in traps_of(name):
        assert text in before
    for text in [*traps_of(name), *older]:
        assert text not in told and after.count(text) == 1


def test_rules_are_told_of_the_traps_of_a_dataset_that_have_some() -> None:
    rules = {trap.text: trap.rules for trap in TRAPS}
    for name in (entry.name for entry in catalogue.datasets(None)):
        assert trap_rules(name) == {text: rules[text] for text in traps_of(name) if rules[text]}
    assert trap_rules("kitchen-mixed-v0") == {} != traps_of("kitchen-mixed-v0")
