"""Real files: each defect is found, and nothing sound is accused."""

from __future__ import annotations

import gzip
import json
import runpy
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow.parquet
import pytest

from datasets_cli import audit_datasets
from datasets_cli.audit.rules.finding import Finding
from datasets_cli.audit.rules.registry import RULES
from datasets_cli.audit.run import audit
from datasets_cli.config import Config
from datasets_cli.core.progress import silent
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.store.arrays import open_arrays
from tests.audit.test_rules import (
    ACTION,
    MINE,
    OBSERVATION,
    REWARD,
    TERMINATED,
    TIMESTAMP,
    TRUNCATED,
    Made,
    findings,
)
from tests.recipes import test_unplugged_real
from tests.support import maze_files
from tests.support.d4rl_cuts import CUTS, DOOR, FOLDER
from tests.support.d4rl_readers import READERS, qlearning_dataset, torchrl
from tests.support.paths import PROJECT, TEST_DATA
from tests.support.unplugged_records import feature, fields, records

WRONG = {
    "door-human-v0": {"false-end": [198], "impossible-terminal": [298]},
    "hammer-cloned-v0": {"false-end": [198]},
    "pen-human-v0": {"false-end": [98]},
    "halfcheetah-medium-v0": {"impossible-terminal": [898]},
    # Step 999 has a timeout and is no row; the ant is reset at steps 211 and 1210.
    "ant-medium-v0": {"false-end": [998], "unflagged-reset": [211, 1209]},
    # Step 998 has a timeout and is no row; the ant jumps after step 1000, where it is reset.
    "antmaze-large-play-v0": {"false-end": [997], "unflagged-reset": [1000]},
    "ant-random-v1": {"frozen-state": [0, 59]},
    "halfcheetah-random-v1": {"frozen-state": [0, 1000]},
    "hopper-medium-replay-v1": {"frozen-state": [0, 40]},
}
"""Rows of the dataset by cut and rule. ``recipes/test_d4rl_cuts.py`` shows each in the file."""
SUSPICIOUS = {"antmaze-medium-diverse-v0": {"terminal-run": [65, 66]}}


def install(cut: str, folder: Path, name: str = "") -> Config:
    """Convert a cut into a root, and return its configuration."""
    source = str(CUTS[cut].lay_out(folder / "source"))
    options = InstallOptions(accept_any=True, source=source)
    install_dataset(f"d4rl/{name or CUTS[cut].name}", Config(folder / "root"), options)
    return Config(folder / "root")


@pytest.mark.parametrize("cut", CUTS)
def test_every_defect_of_a_real_file_is_found_and_no_sound_one_is_accused(
    cut: str, tmp_path: Path
) -> None:
    [audited] = audit_datasets(config=install(cut, tmp_path))
    by_severity: dict[str, dict[str, list[int]]] = {"wrong": {}, "suspicious": {}, "note": {}}
    for finding in audited.findings:
        by_severity[finding.severity][finding.rule] = [*finding.rows]
    assert by_severity["wrong"] == WRONG.get(cut, {})
    assert by_severity["suspicious"] == SUSPICIOUS.get(cut, {})


@pytest.mark.parametrize("name", ["door-human", "door-minari", "iris", "pong"])
def test_the_data_of_the_demo_have_nothing_wrong(name: str, tmp_path: Path) -> None:
    install_dataset(f"demo/{name}", Config(tmp_path), InstallOptions())
    [audited] = audit_datasets(config=Config(tmp_path))
    assert {each.severity for each in audited.findings} <= {"note"} and audited.rules


@pytest.mark.parametrize("name", ["open", "open-ends", "open-dense", "ant-dense"])
def test_mazes_of_minari_have_nothing_wrong(name: str, tmp_path: Path) -> None:
    config = Config(tmp_path / "root")
    maze_files.install(maze_files.unpack(name, tmp_path / "source"), config)
    [audited] = audit_datasets(config=config)
    assert {each.severity for each in audited.findings} <= {"note"} and audited.rules


def test_the_steps_of_a_game_of_rl_unplugged_have_nothing_wrong(tmp_path: Path) -> None:
    """Its unclipped rewards are the clipped ones; the recipe says so, and leaves them out."""
    asterix = test_unplugged_real.install(Config(tmp_path), "compact")
    assert not audit(open_arrays(asterix.folder), RULES, silent)


G1 = TEST_DATA / "lerobot" / "g1"
NUMBERS = (29, 30, 31)
LENGTHS = (221, 277, 267)


def json_lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (G1 / name).read_text(encoding="utf-8").splitlines()]


def robot() -> Made:
    """Return the rows of three episodes of LeRobot; the last step of each is no row."""
    columns: dict[str, list[np.ndarray]] = {}
    for number in NUMBERS:
        table = pyarrow.parquet.read_table(G1 / f"episode_{number:06}.parquet").to_pydict()
        for name, values in table.items():
            columns.setdefault(name, []).append(np.array(values)[:-1])
    whole = {name: np.concatenate(each) for name, each in columns.items()}
    ends = np.diff(whole["episode_index"], append=-1) != 0
    rows = {
        OBSERVATION: whole["observation.state"].astype(np.float32),
        ACTION: whole["action"].astype(np.float32),
        TIMESTAMP: whole["timestamp"].astype(np.float32),
        ("info", "episode_index"): whole["episode_index"],
        TERMINATED: np.zeros(len(ends), np.bool_),
        TRUNCATED: ends,
    }
    fps = json.loads((G1 / "info.json").read_text(encoding="utf-8"))["fps"]
    return Made(rows, whole["episode_index"], {"fps": fps})


def found(rows: Made) -> dict[str, Finding]:
    return {each.rule: each for each in findings(rows, MINE, np.random.default_rng(0))}


def test_three_episodes_of_a_robot_have_nothing_wrong() -> None:
    rows = robot()
    stated = {each["episode_index"]: each["length"] for each in json_lines("episodes.jsonl")}
    assert tuple(stated[number] for number in NUMBERS) == LENGTHS
    rows.columns["info", "episode_index"] -= NUMBERS[0]
    rows.metadata |= {"trajectory_lengths": LENGTHS, "stats": as_stated()}
    assert not found(rows)


def test_of_a_copy_of_three_episodes_all_others_are_missing() -> None:
    rows = robot()
    rows.metadata["trajectory_lengths"] = [each["length"] for each in json_lines("episodes.jsonl")]
    finding = found(rows)["stated-length"]
    assert (finding.severity, finding.count) == ("wrong", 97)
    assert {*finding.rows} == {0, sum(LENGTHS) - 4}  # before the three, and after them


def test_an_episode_whose_file_was_cut_off_has_fewer_rows_than_stated() -> None:
    rows = robot()
    kept = np.delete(np.arange(len(rows.episode)), np.s_[320:360])
    rows.columns = {key: each[kept] for key, each in rows.columns.items()}
    rows.columns["info", "episode_index"] -= NUMBERS[0]
    rows.metadata["trajectory_lengths"] = LENGTHS
    assert found(rows)["stated-length"].rows == (220,)
    assert found(rows)["timestamp-skip"].rows == (320,)


def as_stated() -> dict[str, dict[str, np.ndarray]]:
    """Return the least and the largest numbers of the three episodes, as LeRobot joins them."""
    each = [line["stats"] for line in json_lines("episodes_stats.jsonl")]
    return {
        column: {
            "min": np.min([stats[name]["min"] for stats in each], 0),
            "max": np.max([stats[name]["max"] for stats in each], 0),
        }
        for column, name in (("observation", "observation.state"), ("action", "action"))
    }


def test_quantiles_that_are_means_of_those_of_episodes_differ_from_the_rows() -> None:
    """So LeRobot aggregated them before its issue 3804."""
    rows = robot()
    states = rows.columns[OBSERVATION].astype(np.float64)
    episodes = np.split(states, rows.firsts[1:])
    for name, share in (("q01", 0.01), ("q50", 0.5), ("q99", 0.99)):
        rows.metadata["stats"] = {"observation": {name: np.quantile(states, share, 0)}}
        assert not found(rows)
        each = [np.quantile(episode, share, 0) for episode in episodes]
        rows.metadata["stats"] = {"observation": {name: np.average(each, 0, LENGTHS)}}
        finding = found(rows)["stated-statistics"]
        assert (finding.severity, finding.count) == ("suspicious", len(states))
        assert finding.measure.startswith(f"{name} of observation, number ")


def test_a_state_beyond_what_is_stated_is_named_by_its_row() -> None:
    rows = robot()
    rows.metadata["stats"] = as_stated()
    rows.columns[OBSERVATION][300, 4] += 9
    assert found(rows)["stated-statistics"].rows == (300,)


def test_episodes_that_are_joined_go_back_in_time() -> None:
    rows = robot()
    rows.columns[TRUNCATED][rows.firsts[1] - 1] = False
    assert found(rows)["timestamp-back"].rows == (220,)


def test_a_robot_that_waits_is_noted() -> None:
    rows = robot()
    states = rows.columns[OBSERVATION]
    assert "idle" not in found(rows)
    states[:] = states[np.arange(len(states)) // 2 * 2]  # each state is shown twice
    moved = np.abs(np.diff(states, axis=0)).max(1) > 1e-3
    still = 1 + np.flatnonzero(~moved & (np.diff(rows.episode) == 0))
    finding = found(rows)["idle"]
    assert finding.rows == tuple(still) and finding.severity == "note"
    assert finding.measure.startswith(f"{len(still) / (len(states) - 3):.0%} of the steps, 10% or")


def test_demonstrations_of_robomimic_terminate_again_and_again() -> None:
    with h5py.File(TEST_DATA / "robomimic" / "lift_low_dim.hdf5") as file:
        demos = [file["data"][name] for name in ("demo_0", "demo_1")]
        dones = [np.flatnonzero(demo["dones"][:]) for demo in demos]
        assert [each.tolist() for each in dones] == [[*range(54, 59)], [*range(53, 58)]]
        columns = {
            key: np.concatenate([demo[name][:] for demo in demos])
            for key, name in ((OBSERVATION, "obs/object"), (ACTION, "actions"), (REWARD, "rewards"))
        }
        ends = np.concatenate([demo["dones"][:] != 0 for demo in demos])
    columns |= {TERMINATED: ends, TRUNCATED: np.zeros_like(ends)}
    rows = Made(columns, np.cumsum(np.append(0, ends[:-1])))
    assert found(rows)["terminal-run"].rows == (*range(55, 59), *range(59 + 54, 59 + 58))


def test_the_first_reward_of_an_episode_of_the_control_suite_is_no_number() -> None:
    path = TEST_DATA / "rl_unplugged" / "cartpole_swingup_train-00000-of-00001"
    (record,) = records(gzip.decompress(path.read_bytes()))
    pairs = [fields(entry) for entry in fields(fields(record)[1][0])[1]]
    values = {pair[1][0].decode(): feature(pair[2][0]) for pair in pairs}
    count = len(values["reward"])
    ends = np.arange(count) == count - 1
    columns = {
        OBSERVATION: values["observation/position"].reshape(count, 3),
        ACTION: values["action"],
        REWARD: values["reward"],
        TERMINATED: np.zeros_like(ends),
        TRUNCATED: ends,
    }
    finding = found(Made(columns, np.zeros(count, np.int64)))["not-finite"]
    assert np.flatnonzero(np.isnan(values["reward"])).tolist() == [0] == [*finding.rows]
    assert finding.measure == "1 of them the first of a trajectory"


def test_the_page_is_what_is_made_now() -> None:
    page = runpy.run_path(str(PROJECT / "scripts" / "errata"))["page"]
    text = (PROJECT / "docs" / "errata.md").read_text(encoding="utf-8")
    assert page([FOLDER, DOOR.parent], READERS) == text, "run scripts/errata"
    assert all(f"| {rule.name} | {rule.version} |" in text for rule in RULES)


def laid_out(cut: str, folder: Path) -> Path:
    (path,) = CUTS[cut].lay_out(folder).iterdir()
    return path


def test_d4rl_joins_two_episodes_of_an_ant_that_was_reset(tmp_path: Path) -> None:
    path = laid_out("ant-medium-v0", tmp_path)
    made = qlearning_dataset(path)
    with h5py.File(path) as file:
        timeouts, count = file["timeouts"][:], len(file["rewards"])
    expected = [step for step in range(count - 1) if not timeouts[step]]
    assert made["step"].tolist() == expected and 210 in expected and 999 not in expected
    assert not made["terminated"].any() and made["follows"].all()


@pytest.mark.parametrize(("cut", "step"), [("ant-medium-v0", 210), ("antmaze-large-play-v0", 1000)])
def test_torchrl_joins_the_same_steps(cut: str, step: int, tmp_path: Path) -> None:
    made = torchrl(laid_out(cut, tmp_path))
    at = np.flatnonzero(made["step"] == step)
    assert made["follows"][at].all() and not made["done"][at].any() and len(at) == 1
