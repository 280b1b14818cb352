"""What rules find in real pieces of files whose families have no recipe: blocks are made here."""

from __future__ import annotations

import gzip

import h5py
import numpy as np
import pyarrow.parquet

from datasets_cli.audit.rules.finding import Finding
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
from tests.support.paths import TEST_DATA
from tests.support.unplugged_records import feature, fields, records

G1 = TEST_DATA / "lerobot" / "g1"
NUMBERS = (29, 30, 31)


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
    return Made(rows, whole["episode_index"], {})


def found(rows: Made) -> dict[str, Finding]:
    return {each.rule: each for each in findings(rows, MINE, np.random.default_rng(0))}


def test_three_episodes_of_a_robot_have_nothing_wrong() -> None:
    assert not found(robot())


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
