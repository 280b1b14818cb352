"""Which column is which key, as a user says: flags are kept, names people use are known."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import datasets_cli
from datasets_cli import create_dataset, export_dataset, import_dataset, plan_import
from datasets_cli.config import Config
from datasets_cli.errors import (
    NotWritable,
    PartialFailure,
    UnknownKey,
    UsageError,
    WrongRows,
    arguments_named,
)
from datasets_cli.results import ImportPlan
from datasets_cli.schema.columns import TRUNCATED
from tests.exchange.made_steps import leaf_files

COUNT = 9
DONE = np.isin(np.arange(COUNT), (3, 8)).astype("f4")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Steps whose ends are terminations in ``done``, beside flags of no truncation."""
    columns = {"obs": np.arange(2.0 * COUNT).reshape(COUNT, 2), "action": np.arange(COUNT)}
    columns |= {"next_obs": columns["obs"] + 2, "reward": np.ones(COUNT)}
    np.savez(tmp_path / "a.npz", **columns, done=DONE, truncated=np.zeros(COUNT))
    return tmp_path / "a.npz"


def flags(config: Config, path: Path, map: Any) -> list[list[int]]:
    """Return the rows that are terminated and those that are truncated, read by numpy."""
    import_dataset(path, "mine/a", map=map, layout="ted", force=True, config=config)
    leaves = leaf_files("mine/a", config)
    return [leaves["next", x][:, 0].nonzero()[0].tolist() for x in ("terminated", "truncated")]


@pytest.mark.parametrize("key", ["ends", "lengths", "episode"])
def test_an_end_that_a_flag_denies_is_refused(config: Config, path: Path, key: str) -> None:
    columns = {**np.load(path), "lengths": [4, 5], "episode": [0] * 4 + [1] * 5}
    np.savez(path.with_name("b.npz"), **columns)
    column = {"ends": "done", "lengths": "lengths", "episode": "episode"}[key]
    with pytest.raises(WrongRows) as raised:
        import_dataset(path.with_name("b.npz"), "mine/a", map={key: column}, config=config)
    assert (raised.value.key, raised.value.row) == (TRUNCATED, 3)
    assert not [*config.root.glob("datasets/*/*")]


@pytest.mark.parametrize(
    ("map", "right"),
    [
        ({"next.terminated": "done"}, [[3, 8], []]),
        (["terminated=done", "truncated=truncated"], [[3, 8], []]),
        ({"ends": "done", "terminals": "done"}, [[3, 8], []]),
        ({"ends": "done", "truncated": ""}, [[], [3, 8]]),
        (["ends=done", "next.truncated="], [[], [3, 8]]),
    ],
)
def test_both_flags_or_ends_without_one_are_read(
    config: Config, path: Path, map: Any, right: Any
) -> None:
    assert flags(config, path, map) == right


def test_a_key_by_the_name_that_people_have_replaces_what_was_guessed(path: Path) -> None:
    given = {"rewards": "action", "next_observation": "obs", "terminated": "done"}
    plan = plan_import(path, "mine/a", map=given)
    assert plan.map == {
        "observation": "obs", "action": "action", "next.reward": "action",
        "next.truncated": "truncated", "next.observation": "obs", "next.terminated": "done",
    }  # fmt: skip
    with pytest.raises(UsageError) as raised:
        plan_import(path, "mine/a", map={"reward": "reward", "rewards": "action"})
    assert (raised.value.argument, raised.value.key) == ("map", "next.reward")


@pytest.mark.parametrize(
    ("map", "meant"),
    [
        ("end=done", "ends"),
        ("next.rewards=reward", "next.reward"),
        ("foo=", None),
        ("foo=obs", None),
    ],
)
def test_a_key_that_no_dataset_has_is_refused(path: Path, map: str, meant: str | None) -> None:
    with pytest.raises(UnknownKey) as refused:
        plan_import(path, "mine/a", map=map)
    assert (refused.value.argument, refused.value.key) == ("map", map.partition("=")[0])
    assert meant is None or f"Did you mean {meant}?" in str(refused.value)


@pytest.mark.parametrize(
    "map", [{"ends": 3}, {3: "done"}, [3], ["ends"], {"ends": None}, [("a", "b")]]
)
def test_a_map_of_anything_but_texts_is_refused(path: Path, map: Any) -> None:
    with pytest.raises(UsageError) as raised:
        import_dataset(path, "mine/a", map=map)
    assert (raised.value.argument, raised.value.expected) == ("map", "KEY=COLUMN")


def pasted(refused: pytest.ExceptionInfo[UsageError]) -> list[dict[str, str]]:
    """Return the maps that a message names."""
    return [eval(found) for found in re.findall(r"map=({.*?})", str(refused.value))]


def test_a_refusal_names_the_exact_map(config: Config, path: Path) -> None:
    columns = {**np.load(path), "acting": np.ones(COUNT)}
    np.savez(
        path, **{key: rows for key, rows in columns.items() if key not in ("action", "truncated")}
    )
    with pytest.raises(UnknownKey) as refused:
        plan_import(path, "mine/a")
    assert refused.value.key == "ends"
    maps = pasted(refused)
    assert maps == [{"ends": "done"}, {"ends": "done", "next.terminated": "done"}]
    with pytest.raises(UnknownKey) as refused:
        plan_import(path, "mine/a", map=maps[1])
    assert refused.value.key == "action"
    [action] = pasted(refused)
    assert flags(config, path, {**maps[1], **action}) == [[3, 8], []]


def test_synonyms_are_known(config: Config, tmp_path: Path) -> None:
    columns = {"obs": DONE, "acts": DONE, "rews": DONE, "obs_next": DONE + 1}
    np.savez(tmp_path / "a.npz", **columns, terminal=DONE, timeout=0 * DONE)
    assert flags(config, tmp_path / "a.npz", None) == [[3, 8], []]
    assert leaf_files("mine/a", config)["next", "observation"].tolist() == (DONE + 1).tolist()


FORMS = ("", "array", "group", "group of two")


PAIRS = [(a, b, FORMS[(i + j) % 4]) for i, a in enumerate(FORMS) for j, b in enumerate(FORMS)]


@pytest.mark.parametrize("forms", PAIRS)
def test_one_of_several_observations_is_read_and_the_line_says_which(
    tmp_path: Path, forms: tuple[str, ...]
) -> None:
    names = ("observations", "obs", "states")
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        for name, form in zip(names, forms, strict=True):
            below = {"": [], "array": [""], "group": ["/a"], "group of two": ["/a", "/b"]}[form]
            for each in below:
                file[name + each] = np.zeros((COUNT, 2))
        file["actions"], file["rewards"], file["ends"] = DONE, DONE, DONE
    if not any(forms):
        with pytest.raises(UnknownKey) as raised:
            plan_import(tmp_path / "a.hdf5", "mine/a")
        assert raised.value.key == "observation"
        return
    plan = plan_import(tmp_path / "a.hdf5", "mine/a")
    first = next(name for name, form in zip(names, forms, strict=True) if form)
    read = {key: name for key, name in plan.map.items() if key.startswith("observation")}
    assert {name.split("/")[0] for name in read.values()} == {first}
    assert len(read) == (2 if forms[names.index(first)] == "group of two" else 1)
    skipped = {each["column"].split("/")[0] for each in plan.columns if each["skipped"]}
    assert skipped == {name for name, form in zip(names, forms, strict=True) if form} - {first}
    again = plan_import(tmp_path / "a.hdf5", "mine/a", map=pasted_line(plan))
    assert again == plan


def pasted_line(plan: ImportPlan) -> list[str]:
    with arguments_named(lambda name, value: name):
        words = shlex.split(plan.options)
    return [word for word in words if word != "--map"]


def test_what_was_left_out_is_left_out_by_the_line(path: Path) -> None:
    plan = plan_import(path, "mine/a", map={"ends": "done", "truncated": "", "info.x y": "obs"})
    assert plan.map["next.truncated"] == ""
    assert plan.dropped[-1] == "truncated: no key is mapped to it"
    assert plan_import(path, "mine/a", map=pasted_line(plan)) == plan


def test_one_observation_of_a_group_replaces_the_group(config: Config, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        for name in ("obs/a", "obs/b", "actions", "rewards", "ends"):
            file[name] = DONE + (name == "obs/b")
    import_dataset(
        tmp_path / "a.hdf5", "mine/a", map="observation=obs/b", layout="ted", config=config
    )
    leaves = leaf_files("mine/a", config)
    assert leaves["observation",].tolist() == [1, 1, 1, 1, 1, 1, 1]
    assert ("observation", "a") not in leaves


def test_a_dry_run_counts_what_would_be_installed(config: Config, path: Path) -> None:
    given = {"map": {"ends": "done", "truncated": "", "next_observation": ""}, "config": config}
    tried = import_dataset(path, "mine/a", dry_run=True, **given)
    assert not config.root.exists() or not [*config.root.rglob("*memmap")]
    made = import_dataset(path, "mine/a", **given)
    counts = [(x.path, x.num_transitions, x.num_trajectories, x.final_steps) for x in (tried, made)]
    assert counts[0] == counts[1] == (made.path, 7, 2, 2)
    assert (tried.state, tried.size_bytes) == ("not installed", 0)
    np.savez(path, **{**np.load(path), "reward": np.full(COUNT, 1j)})
    with pytest.raises(WrongRows) as caught:
        import_dataset(path, "mine/a", dry_run=True, **given)
    assert caught.value.key == ("next", "reward")
    assert caught.value.row == 0
    assert caught.value.found == "complex128 [9, 1]"


def test_a_column_beside_one_that_means_the_same_keeps_its_name(tmp_path: Path) -> None:
    path, rows = tmp_path / "a.npz", np.zeros(3)
    np.savez(path, observation=rows, state=rows, action=rows, reward=rows, ends=rows)
    plan = plan_import(path, "mine/a", map={"observation": "observation", "state": "state"})
    assert plan.map["observation"] == "observation" and plan.map["state"] == "state"


@pytest.mark.parametrize("format", ["npz", "d4rl", "minari", "torchrl", "parquet"])
def test_a_column_may_be_read_for_two_keys(config: Config, tmp_path: Path, format: str) -> None:
    rows = np.random.default_rng(1).normal(size=(COUNT + 1, 2))
    given = {"observation": rows[:-1], "next_observation": rows[1:], "action": rows[1:]}
    given |= {"reward": np.ones(COUNT), "truncated": DONE, "terminated": 0 * DONE}
    create_dataset("mine/a", given, config=config)
    made = export_dataset("mine/a", format, tmp_path / "out", allow_loss=True, config=config)
    theirs = plan_import(made.path, "mine/b").map
    both = {"info.copy": theirs["action"]}
    if format != "minari":
        both["ends"] = theirs["next.truncated"]
    import_dataset(made.path, "mine/b", map=both, layout="ted", config=config)
    leaves = leaf_files("mine/b", config)
    assert leaves["info", "copy"].tobytes() == leaves["action",].tobytes() == rows[1:].tobytes()
    assert leaves["next", "truncated"][:, 0].nonzero()[0].tolist() == [3, 8]


def _npz(path: Path, seed: int = 0) -> Path:
    noise = np.random.default_rng(seed).normal(size=(COUNT, 2))
    np.savez(path, observation=noise, action=noise, reward=noise[:, 0], ends=DONE)
    return path


@pytest.mark.parametrize("place", ["next/reward.memmap", "manifest.json"])
def test_repair_says_how_own_data_are_made_again_and_force_does_it(
    config: Config, tmp_path: Path, place: str
) -> None:
    path = _npz(tmp_path / "a.npz")
    made = import_dataset(path, "mine/lift", layout="ted", config=config)
    whole = (made.path / place).read_bytes()
    (made.path / place).write_bytes(whole[:-8])
    with pytest.raises(PartialFailure) as refused:
        datasets_cli.repair("mine/lift", config=config)
    [result] = refused.value.results
    told = (
        "rlds import a.npz --name mine/lift --force"
        if place != "manifest.json"
        else "your own data"
    )
    assert told in str(result.error) and "Did you mean" not in str(result.error)
    import_dataset(path, "mine/lift", layout="ted", force=True, config=config)
    assert place == "manifest.json" or (made.path / place).read_bytes() == whole
    assert datasets_cli.verify("mine/lift", deep=True, config=config)[0].ok


def test_the_same_import_makes_a_damaged_dataset_whole(config: Config, tmp_path: Path) -> None:
    path = _npz(tmp_path / "a.npz")
    made = import_dataset(path, "mine/lift", layout="ted", config=config)
    (made.path / "action.memmap").write_bytes(b"")
    import_dataset(path, "mine/lift", layout="ted", config=config)
    values = np.fromfile(made.path / "action.memmap").reshape(-1, 2)
    assert values.tolist() == np.load(path)["action"][[0, 1, 2, 4, 5, 6, 7]].tolist()


@pytest.mark.parametrize(
    ("name", "seed", "layout"), [("b.npz", 0, "ted"), ("a.npz", 0, "compact"), ("b.npz", 1, "ted")]
)
def test_an_installed_dataset_and_a_new_one_of_its_id_are_described_in_the_error(
    config: Config, tmp_path: Path, name: str, seed: int, layout: str
) -> None:
    import_dataset(_npz(tmp_path / "a.npz"), "mine/a", layout="ted", config=config)
    path = _npz(tmp_path / name, seed)
    with pytest.raises(NotWritable) as raised:
        import_dataset(path, "mine/a", layout=layout, config=config)
    error = raised.value
    assert error.expected == "7 transitions of a.npz in the layout ted"
    assert error.found == f"7 transitions of {name} in the layout {layout}"
    assert error.id == "mine/a" and "force=True" in str(error.advice)
    import_dataset(path, "mine/a", layout=layout, force=True, config=config)
