"""Blocks of the page on other libraries; the values are compared with the publisher's files."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import datasets_cli
from tests.support import executed
from tests.support.conformance import case_of
from tests.support.d4rl_cuts import columns as columns_of_file
from tests.support.paths import DEMO_DATA
from tests.support.values import Key

PAGE = "docs/other-libraries.md"
Columns = dict[str, np.ndarray]
Check = Callable[[dict[str, Any]], None]


def rows_of(family: str, ends: tuple[str, str]) -> Columns:
    """Return the rows that an independent reader finds, by the publisher's names."""
    leaves = case_of(family).expected().leaves
    names: dict[str, Key] = {
        "observations": ("observation",),
        "next_observations": ("next", "observation"),
        "actions": ("action",),
    }
    flat: dict[str, Key] = {
        "rewards": ("next", "reward"),
        ends[0]: ("next", "terminated"),
        ends[1]: ("next", "truncated"),
    }
    columns = {name: leaves[key] for name, key in names.items()}
    return columns | {name: leaves[key][:, 0] for name, key in flat.items()}


d4rl = partial(rows_of, "d4rl", ("terminals", "timeouts"))
minari = partial(rows_of, "minari", ("terminations", "truncations"))


def d3rlpy(names: dict[str, Any]) -> None:
    rows, dataset = columns_of_file("door-human-v0"), names["dataset"]
    assert dataset.transition_count == 299
    for name in ("observations", "actions", "rewards"):
        values = np.concatenate([getattr(each, name) for each in dataset.episodes])
        assert np.array_equal(values.reshape(rows[name].shape), rows[name])
    assert [(each.size(), each.terminated) for each in dataset.episodes] == [(200, 0), (100, 1)]


def stable_baselines3(names: dict[str, Any]) -> None:
    if "rb" in names:
        cleanrl(names)
        return
    rows, buffer = minari(), names["buffer"]
    for name in ("observations", "next_observations", "actions"):
        assert np.array_equal(getattr(buffer, name)[:, 0], rows[name])
    assert np.array_equal(buffer.rewards[:, 0], rows["rewards"].astype("f4"))
    ends = rows["terminations"] | rows["truncations"]
    assert np.array_equal(buffer.dones[:, 0], ends)
    assert np.array_equal(buffer.timeouts[:, 0], rows["truncations"])
    assert not names["batch"].dones.any()
    added = type(buffer)(900, buffer.observation_space, buffer.action_space, device="cpu")
    columns = ("observations", "next_observations", "actions", "rewards")
    for row, end in enumerate(ends):
        info = {"TimeLimit.truncated": rows["truncations"][row]}
        added.add(*(rows[name][row : row + 1] for name in columns), end[None], [info])
    for name in (*columns, "dones", "timeouts"):
        assert np.array_equal(getattr(added, name), getattr(buffer, name))
    assert (added.full, added.pos) == (buffer.full, buffer.pos)


def cleanrl(names: dict[str, Any]) -> None:
    logs = DEMO_DATA / "atari_dqn" / "Pong" / "5" / "replay_logs"
    with gzip.open(logs / "$store$_observation_ckpt.0.gz") as file:
        frames = np.load(file)
    frames = {frame.tobytes() for frame in frames}
    data = names["rb"].sample(64)
    newest = data.observations[:, -1].numpy()
    assert data.observations.shape == (64, 4, 84, 84) and data.actions.shape == (64, 1)
    assert sum(frame.tobytes() in frames for frame in newest) > 10
    assert set(data.rewards.flatten().tolist()) <= {-1.0, 0.0, 1.0}


def tianshou(names: dict[str, Any]) -> None:
    rows, buffer = d4rl(), names["buffer"]
    for ours, theirs in (("obs", "observations"), ("act", "actions"), ("rew", "rewards")):
        assert np.array_equal(getattr(buffer, ours), rows[theirs])
    goes_on = ~rows["terminals"]
    assert np.array_equal(buffer.obs_next[goes_on], rows["next_observations"][goes_on])
    assert np.array_equal(buffer.terminated, rows["terminals"])
    assert np.array_equal(buffer.truncated, rows["timeouts"])
    assert (buffer.next(0), buffer.prev(1), buffer.next(298)) == (1, 0, 298)


def rllib(names: dict[str, Any]) -> None:
    rows, batch = d4rl(), names["batch"]
    pairs = {"observation": "observations", "action": "actions", "reward": "rewards"}
    for ours, theirs in pairs.items():
        assert np.array_equal(np.stack(list(batch[ours])), rows[theirs])
    assert np.array_equal(batch["terminated"], rows["terminals"])


def grain(names: dict[str, Any]) -> None:
    rows, source = d4rl(), names["source"]
    read = [source[row] for row in range(len(source))]
    assert np.array_equal([row["observation"] for row in read], rows["observations"])
    assert np.array_equal([row["next"]["reward"][0] for row in read], rows["rewards"])
    place = {row.tobytes(): number for number, row in enumerate(rows["observations"])}
    drawn = [place[row.tobytes()] for row in names["batch"]["observation"]]
    assert np.array_equal(names["batch"]["action"], rows["actions"][drawn])
    assert len({*drawn}) == 64


def lightning(names: dict[str, Any]) -> None:
    rows, steps = d4rl(), names["Steps"]()
    steps.setup("fit")
    place = {row.tobytes(): number for number, row in enumerate(rows["observations"])}
    batches = [*steps.train_dataloader()]
    for batch in batches:
        drawn = [place[row.tobytes()] for row in batch["observation"].numpy()]
        assert np.array_equal(batch["action"].numpy(), rows["actions"][drawn])
    assert len(batches) == 5 and names["trainer"].global_step == 10


CHECKS: dict[str, Check] = {
    "d3rlpy": d3rlpy,
    "stable_baselines3": stable_baselines3,
    "tianshou": tianshou,
    "ray.rllib": rllib,
    "grain": grain,
    "lightning": lightning,
}
BLOCKS = [block for block in executed.blocks(PAGE) if block.library]


def test_the_dict_for_corl_has_the_publishers_values() -> None:
    datasets_cli.download("demo/*")
    run, rows = executed.Run(), d4rl()
    run.all([block for block in executed.blocks(PAGE) if not block.library])
    dataset, goes_on = run.names["dataset"], ~rows["terminals"]
    assert {*dataset} == {*rows} - {"timeouts"}
    for name in {*dataset} - {"next_observations"}:
        assert np.array_equal(dataset[name], rows[name])
    following = dataset["next_observations"]
    assert np.array_equal(following[goes_on], rows["next_observations"][goes_on])
    assert not following[~goes_on].any()


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("block", BLOCKS, ids=[f"{each.library}-{each.line}" for each in BLOCKS])
def test_a_dataset_in_an_object_of_another_library_has_the_publishers_values(
    block: executed.Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if block.library == "ray.rllib":
        pytest.importorskip("tree", reason="RLlib needs dm-tree, which is not installed")
        pytest.importorskip("lz4", reason="RLlib needs lz4, which is not installed")
    pytest.importorskip(block.library, reason=f"{block.library} is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLDS_OFFLINE", "1")
    datasets_cli.download("demo/*")
    run = executed.Run()
    run.all([replace(block, library="")])
    CHECKS[block.library](run.names)
