"""HDF5 of D4RL, robomimic and d3rlpy: written for h5py and their readers, read from their files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import datasets_cli
from datasets_cli import create_dataset
from datasets_cli.config import Config
from datasets_cli.errors import SourceError, UnknownKey, UsageError, WrongRows
from datasets_cli.schema.columns import TERMINATED
from datasets_cli.store.manifest import read_manifest
from datasets_cli.verbs.export_dataset import export_dataset
from datasets_cli.verbs.import_dataset import import_dataset, plan_import
from tests.support.d4rl_cuts import CUTS
from tests.support.values import assert_folder, expect, read_leaves, read_source

COUNT = 9

# What a user of D4RL has: h5py, numpy, and the loop of `qlearning_dataset`, from its description:
# float32, the observation of the next row as the successor, no row with a timeout, not the last.
READER = """
import sys
import h5py
import numpy as np

names = "observations actions rewards terminals timeouts".split()
with h5py.File(sys.argv[1]) as file:
    columns = {name: file[name][()] for name in names}
rows = []
for i in range(len(columns["rewards"]) - 1):
    if not columns["timeouts"][i]:
        rows.append(dict(
            observations=columns["observations"][i].astype(np.float32),
            actions=columns["actions"][i].astype(np.float32),
            rewards=columns["rewards"][i].astype(np.float32),
            next_observations=columns["observations"][i + 1].astype(np.float32),
            terminals=bool(columns["terminals"][i]),
        ))
np.savez(sys.argv[2], **{name: np.stack([row[name] for row in rows]) for name in rows[0]})
assert "datasets_cli" not in sys.modules
"""


@pytest.mark.parametrize("name", list(CUTS))
def test_a_published_file_becomes_the_rows_that_its_values_give(config: Config, name: str) -> None:
    made = import_dataset(CUTS[name].path, "mine/cut", layout="ted", config=config)
    assert_folder(made.path, expect(read_source(CUTS[name].path)))


def test_the_dict_of_d4rls_users_is_that_of_the_original(hopper: str, tmp_path: Path) -> None:
    theirs, path = tmp_path / "theirs.npz", tmp_path / "out.hdf5"
    export_dataset(hopper, "d4rl", path)
    command = [sys.executable, "-I", "-c", READER, str(path), str(theirs)]
    subprocess.run(command, check=True, timeout=120)
    ours = datasets_cli.ExperienceReplay(hopper).qlearning_dataset(like="d4rl")
    with np.load(theirs) as found:
        assert {*ours} - {*found} == {"timeouts"}
        for name in found:
            assert found[name].dtype == ours[name].dtype, name
            assert found[name].tobytes() == ours[name].tobytes(), name


def steps(seed: int, lengths: list[int], kind: str = "float32") -> dict[Any, Any]:
    rng, count = np.random.default_rng(seed), sum(lengths)
    terminated = np.zeros(count, bool)
    terminated[np.cumsum(lengths) - 1] = rng.integers(0, 2, len(lengths))
    texts = np.array(["", "a", "ü\n", "\udcff"], object)
    return {
        "observation": {
            "state": rng.integers(0, 99, (count, 3)).astype(kind),
            "deep": {"none": np.zeros((count, 0), "i1"), "on": rng.integers(0, 2, count) > 0},
        },
        "next_observation": {
            "state": rng.integers(0, 99, (count, 3)).astype(kind),
            "deep": {"none": np.zeros((count, 0), "i1"), "on": rng.integers(0, 2, count) > 0},
        },
        "action": {"arm": rng.normal(size=(count, 2)), "grip": rng.integers(-9, 9, count, "i1")},
        "reward": rng.normal(size=count).astype("float16"),
        "terminated": terminated,
        ("info", "task"): texts[rng.integers(0, 4, count)],
        ("info", "words"): texts[rng.integers(0, 4, (count, 2))],
        ("next", "info", "score"): rng.normal(size=(count, 1)).astype("complex64"),
    }


@given(
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    kind=st.sampled_from(["bool", "int8", "uint16", "float16", "float64", "int64"]),
    layout=st.sampled_from(["ted", "compact"]),
    seed=st.integers(0, 9),
)
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_columns_come_back(
    config: Config, tmp_path: Path, lengths: list[int], kind: str, layout: str, seed: int
) -> None:
    given, path = steps(seed, lengths, kind), tmp_path / "out.hdf5"
    options: Any = {"config": config, "force": True, "progress": None}
    create_dataset("mine/a", given, lengths=lengths, layout=layout, **options)
    export_dataset("mine/a", "d4rl", path, **options)
    found = read_source(path)
    wanted = by_path(given)
    last = np.zeros(sum(lengths), bool)
    last[np.cumsum(lengths) - 1] = True
    wanted["timeouts"] = last & ~given["terminated"]
    assert {*found} == {*wanted}
    for name, rows in wanted.items():
        values = np.vectorize(encoded, [object])(rows) if rows.dtype == object else rows
        assert (found[name].dtype, found[name].shape) == (values.dtype, values.shape), name
        assert found[name].tolist() == values.tolist(), name
    import_dataset(path, "mine/b", layout=layout, **options)
    export_dataset("mine/b", "d4rl", tmp_path / "again.hdf5", **options)
    again = read_source(tmp_path / "again.hdf5")
    assert {name: (str(rows.dtype), rows.tolist()) for name, rows in again.items()} == {
        name: (str(rows.dtype), rows.tolist()) for name, rows in found.items()
    }


def encoded(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def by_path(given: Mapping[Any, Any]) -> dict[str, np.ndarray]:
    """Return columns by the paths that an export gives them."""
    names = {"observation": "observations", "next_observation": "next_observations"}
    names |= {"action": "actions", "reward": "rewards", "terminated": "terminals"}
    paths: dict[str, np.ndarray] = {}
    for key, values in given.items():
        if isinstance(values, dict):
            below = by_path(values)
            paths |= {f"{names.get(key, key)}/{name}": rows for name, rows in below.items()}
        else:
            path = "/".join(key) if isinstance(key, tuple) else names.get(key, key)
            paths[path.replace("next/info", "next_infos").replace("info/", "infos/")] = values
    return paths


def flat(count: int = COUNT) -> dict[str, Any]:
    flags = np.zeros(count, bool)
    flags[-1:] = True
    return {
        "observations": np.arange(2.0 * count).reshape(count, 2),
        "actions": np.arange(count),
        "rewards": np.ones(count, "f4"),
        "terminals": flags,
        "timeouts": np.zeros(count, bool),
    }


def save(path: Path, columns: Mapping[str, Any]) -> Path:
    with h5py.File(path, "w") as file:
        for name, rows in columns.items():
            if rows is not None:
                file[name] = rows
    return path


def test_terminals_alone_do_not_mark_ends(config: Config, tmp_path: Path) -> None:
    path = save(tmp_path / "flow.hdf5", {**flat(), "timeouts": None, "steps": [4, 5]})
    with pytest.raises(UnknownKey) as raised:
        import_dataset(path, "mine/flow", config=config)
    assert raised.value.key == "ends" and "lengths=COLUMN" in str(raised.value.advice)
    assert not (config.root / "datasets").exists()
    made = import_dataset(path, "mine/flow", map={"lengths": "steps"}, config=config)
    assert (made.num_trajectories, made.num_transitions, made.final_steps) == (2, 8, 1)
    made = import_dataset(path, "mine/all", map={"ends": "terminals"}, config=config)
    assert (made.num_trajectories, made.num_transitions) == (1, 9)


def test_the_files_of_d3rlpy_2_are_episodes_by_their_numbers(
    config: Config, tmp_path: Path
) -> None:
    # As the `dump` of its buffer writes them, facts of d3rlpy 2.8.1: version 2.1.
    path, last = tmp_path / "d3rlpy.h5", {0: True, 1: False, 10: True}
    with h5py.File(path, "w") as file:
        file["columns"] = ["observations", "actions", "rewards", "terminated"]
        file["num_episodes"], file["version"] = 3, "2.1"
        for number, terminated in last.items():
            for part, width in enumerate((2, 5)):  # of a tuple of observations
                file[f"observations_{number}_{part}"] = np.full((3, width), number, "f4")
            file[f"actions_{number}"] = np.full((3, 1), number, "i8")
            file[f"rewards_{number}"] = np.ones((3, 1), "f4")
            file[f"terminated_{number}"] = terminated
    plan = plan_import(path, "mine/d3rlpy")
    assert plan.ends and plan.map["observation.1"] == "observations/1"
    assert {text.split(":")[0] for text in plan.dropped} == {"columns", "num_episodes", "version"}
    leaves = read_leaves(import_dataset(path, "mine/d3rlpy", config=config).path)
    # What was cut off loses its last step, whose successor is not known.
    assert leaves["action",][:, 0].tolist() == [0, 0, 0, 1, 1, 10, 10, 10]
    assert leaves["observation", "1"].shape == (8, 5)
    assert leaves["next", "terminated"][:, 0].tolist() == [0, 0, 1, 0, 0, 0, 0, 1]
    assert leaves["next", "truncated"][:, 0].tolist() == [0, 0, 0, 0, 1, 0, 0, 0]


def test_groups_of_robomimic_are_trajectories_in_the_order_of_their_numbers(
    config: Config, tmp_path: Path
) -> None:
    path = tmp_path / "robomimic.hdf5"
    with h5py.File(path, "w") as file:
        for number in (10, 2, 0):
            demo = file.create_group(f"data/demo_{number}")
            demo.attrs["num_samples"] = 3
            for name in ("obs/eye", "next_obs/eye"):
                demo[name] = np.full((3, 4), number + 0.5 * (name[0] == "n"))
            demo["actions"], demo["rewards"] = np.full((3, 2), number), np.zeros(3)
            demo["states"], demo["dones"] = np.zeros((3, 9)), [0, 1, 1]
            demo["one"] = 4
            if number:
                demo["some"] = np.zeros(3)
        file["mask/train"] = np.array([b"demo_0"])
    plan = plan_import(path, "mine/lift")
    assert (plan.format, plan.map["observation.eye"]) == ("robomimic", "obs/eye")
    dropped = {text.split(":")[0] for text in plan.dropped}
    assert dropped == {"one", "some", "attributes of episodes"}
    # The keys are those of the recipe robomimic.
    others = {key: plan.map[key] for key in ("info.states", "info.dones", "split")}
    assert others == {"info.states": "states", "info.dones": "dones", "split": "mask"}
    made = import_dataset(path, "mine/lift", config=config)
    leaves = read_leaves(made.path)
    assert leaves["observation", "eye"][:, 0].tolist() == [0, 0, 0, 2, 2, 2, 10, 10, 10]
    assert leaves["next", "observation", "eye"][::3, 3].tolist() == [0.5, 2.5, 10.5]
    assert leaves["next", "truncated"][:, 0].tolist() == [0, 0, 1] * 3
    assert leaves["episode",].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    for key, error_key in (("ends", "ends"), ("next.terminated", TERMINATED)):
        with pytest.raises(UsageError) as raised:
            import_dataset(path, "mine/x", map={key: "dones"}, config=config)
        assert raised.value.key == error_key


def test_episode_terminals_of_d3rlpy_are_ends(config: Config, tmp_path: Path) -> None:
    given = {**flat(), "timeouts": None, "version": "1.1.0", "discrete_action": False}
    ends = np.isin(np.arange(COUNT), (3, COUNT - 1)).astype("f4")
    path = save(tmp_path / "d3rlpy.h5", {**given, "episode_terminals": ends})
    made = import_dataset(path, "mine/d3rlpy", config=config)
    assert (made.num_trajectories, made.num_transitions) == (2, 8)
    save(path, {**given, "episode_terminals": ends, "terminals": np.ones(COUNT)})
    with pytest.raises(WrongRows) as raised:
        import_dataset(path, "mine/contradictory", config=config)
    assert (raised.value.key, raised.value.row) == (TERMINATED, 0)


def _refer(file: h5py.File) -> None:
    del file["rewards"]
    file["rewards"] = h5py.ExternalLink("/etc/passwd", "/")


def _link(file: h5py.File) -> None:
    file["rewards_too"] = h5py.SoftLink("/rewards")


def _circle(file: h5py.File) -> None:
    file["infos/again"] = file.require_group("infos")


@pytest.mark.parametrize(("change", "kind"), [(_refer, "an ExternalLink"), (_link, "a SoftLink")])
def test_links_are_refused(
    config: Config, tmp_path: Path, change: Callable[[h5py.File], None], kind: str
) -> None:
    path = save(tmp_path / "links.hdf5", flat())
    with h5py.File(path, "a") as file:
        change(file)
    with pytest.raises(SourceError) as caught:
        import_dataset(path, "mine/links", config=config)
    assert (caught.value.path, caught.value.found) == ("links.hdf5", kind)


def test_a_circle_of_groups_ends(config: Config, tmp_path: Path) -> None:
    path = save(tmp_path / "circle.hdf5", flat())
    with h5py.File(path, "a") as file:
        _circle(file)
    assert import_dataset(path, "mine/circle", config=config).num_transitions == COUNT


def test_what_no_column_can_have_is_named(config: Config, tmp_path: Path) -> None:
    path = save(tmp_path / "odd.hdf5", flat())
    with h5py.File(path, "a") as file:
        file.create_dataset("infos/refs", (COUNT,), h5py.ref_dtype)
        file["infos/table"] = np.zeros(COUNT, [("a", "f4"), ("b", "i4")])
        file.create_dataset("infos/ragged", (COUNT,), h5py.vlen_dtype("i4"))
        file["infos/empty"] = h5py.Empty("f4")
        file["infos/short"] = np.zeros(COUNT - 1)
        file["infos/long"] = np.zeros(COUNT, np.longdouble)
        file["metadata/algorithm"], file["metadata/weight"] = b"SAC", np.zeros((COUNT, 2))
        file["other"] = np.zeros(COUNT)
    plan = plan_import(path, "mine/odd")
    odd = {f"infos/{name}" for name in ("refs", "table", "ragged", "empty", "short", "long")}
    named = {text.split(":")[0] for text in plan.dropped}
    assert named == odd | {"metadata/algorithm", "metadata/weight", "other"}
    assert import_dataset(path, "mine/odd", config=config).num_transitions == COUNT
    with pytest.raises(UnknownKey) as raised:
        plan_import(path, "mine/odd", map={"info.refs": "infos/refs"})
    assert (raised.value.key, raised.value.found) == ("info.refs", "infos/refs")


def _wrong_files(folder: Path) -> dict[str, Path]:
    whole = save(folder / "whole.hdf5", {**flat(), "metadata/x": np.zeros(99_999)}).read_bytes()
    files = {name: folder / f"{name}.hdf5" for name in ("empty", "cut", "noise", "links")}
    for name, data in {"empty": b"", "cut": whole[:5000], "noise": b"\x89HDF\r\n\x1a\n?"}.items():
        files[name].write_bytes(data)
    save(files["links"], {})
    ragged = save(folder / "ragged.hdf5", {**flat(), "actions": np.zeros(4)})
    nothing = save(folder / "nothing.hdf5", flat(0))
    twice = save(folder / "flag.hdf5", {**flat(), "timeouts": np.full(COUNT, np.nan)})
    table = save(folder / "table.hdf5", {"observations": np.zeros(4, [("a", "f4")])})
    odd = save(folder / "odd.hdf5", {"data/demo_0/obs": np.zeros((0, 3)), "data/x1": 3})
    listed = [folder, *files.values(), ragged, nothing, twice, table, odd]
    return {path.stem: path for path in listed}


def test_wrong_files_leave_nothing_behind(config: Config, tmp_path: Path) -> None:
    folder = tmp_path / "wrong"
    folder.mkdir()
    for name, path in _wrong_files(folder).items():
        with pytest.raises((UsageError, SourceError)):
            import_dataset(path, "mine/wrong", format="d4rl", config=config)
            pytest.fail(name)
        assert not [*config.root.glob("datasets/*/*"), *config.root.glob("tmp/*")], name


def test_what_the_file_cannot_hold_is_named_before_it_is_written(
    config: Config, tmp_path: Path
) -> None:
    half = np.zeros(COUNT, np.dtype([("bfloat16", "<u2")]))
    odd = {("info", "half"): half, ("info", "a.b"): np.zeros(COUNT), ("data", "x"): np.zeros(COUNT)}
    given = {**steps(0, [COUNT]), **odd}
    create_dataset("mine/odd", given, lengths=[COUNT], config=config)
    path = tmp_path / "odd.hdf5"
    losses = export_dataset("mine/odd", "d4rl", path, dry_run=True, config=config).losses
    assert {text.split(":")[0] for text in losses} == {"info.half", "info.a.b", "data.x"}
    with pytest.raises(UsageError) as caught:
        export_dataset("mine/odd", "d4rl", path, config=config)
    assert caught.value.argument == "allow_loss"
    assert caught.value.id == "mine/odd"
    assert not path.exists()
    export_dataset("mine/odd", "d4rl", path, allow_loss=True, config=config)
    assert "infos/half" not in read_source(path)


def test_a_zero_byte_in_a_text_is_refused_and_nothing_is_left(
    config: Config, tmp_path: Path
) -> None:
    given = {**steps(0, [3]), ("info", "task"): ["a", "b\0", "c"]}
    create_dataset("mine/zero", given, lengths=[3], config=config)
    with pytest.raises(WrongRows) as raised:
        export_dataset("mine/zero", "d4rl", tmp_path / "out.hdf5", config=config)
    assert raised.value.key == ("info", "task")
    assert not [*tmp_path.glob("*.hdf5*"), *tmp_path.glob(".*")]


def test_what_is_said_of_the_data_comes_back(config: Config, tmp_path: Path) -> None:
    info = {"title": "A robot", "licence": "MIT", "ref_max_score": 3.0, "more": {"a": [1]}}
    create_dataset("mine/robot", steps(0, [3]), lengths=[3], info=info, config=config)
    path = tmp_path / "out.hdf5"
    assert export_dataset("mine/robot", "d4rl", path, config=config).losses == ()
    import_dataset(path, "mine/back", config=config)
    metadata = read_manifest(config.root / "datasets/mine/back").metadata
    assert {name: metadata[name] for name in info} == info
    with h5py.File(path, "a") as file:
        del file["metadata/rlds"]
        file["metadata/rlds"] = '{"licence": 3}'
    with pytest.raises(UsageError) as raised:
        import_dataset(path, "mine/other", config=config)
    assert raised.value.argument == "info"


def test_demonstrations_of_maniskill_may_have_states_alone(config: Config, tmp_path: Path) -> None:
    path = tmp_path / "PickCube.h5"
    with h5py.File(path, "w") as file:
        for number, count in ((0, 3), (1, 2)):
            group = file.create_group(f"traj_{number}")
            group["env_states/actors/cube"] = np.arange(count + 1.0)[:, None]
            group["actions"], group["success"] = np.ones((count, 2)), [True] * count
            group["terminated"], group["truncated"] = [True] * count, [False] * count
    with pytest.raises(UnknownKey) as refused:
        plan_import(path, "mine/cube")
    map = {"observation.actors.cube": "env_states/actors/cube"}
    assert refused.value.key == "observation" and f"map={map}" in str(refused.value.advice)
    with pytest.raises(WrongRows) as raised:
        import_dataset(path, "mine/cube", map=map, config=config)
    assert raised.value.key == TERMINATED
    map |= {"next.terminated": "", "next.truncated": ""}
    leaves = read_leaves(import_dataset(path, "mine/cube", map=map, config=config).path)
    assert leaves["next", "observation", "actors", "cube"][:, 0].tolist() == [1, 2, 3, 1, 2]
    assert leaves["next", "truncated"][:, 0].tolist() == [0, 0, 1, 0, 1]
    assert ("next", "reward") not in leaves


@pytest.mark.parametrize("is_group", [True, False])
def test_trajectories_of_maniskill_end_with_the_observation_after_their_last_step(
    config: Config, tmp_path: Path, is_group: bool
) -> None:
    # As its RecordEpisode writes them: T + 1 observations and states, T of anything else.
    path, key = tmp_path / "PickCube.h5", ("observation", *(["qpos"] if is_group else []))
    with h5py.File(path, "w") as file:
        for number, count in ((10, 2), (2, 3)):
            group = file.create_group(f"traj_{number}")
            rows = np.arange(count + 1.0)[:, None] + number
            group.create_dataset("obs/qpos" if is_group else "obs", data=rows, compression="gzip")
            group["env_states/actors/cube"] = rows * 2
            group["actions"], group["rewards"] = rows[:-1], rows[:-1, 0]
            last = np.arange(count) == count - 1
            group["success"], group["terminated"] = last, last & (number == 2)
            group["truncated"] = last & (number == 10)
    plan = plan_import(path, "mine/cube")
    assert plan.format == "maniskill"
    states = {"info.cube": "env_states/actors/cube"}
    leaves = read_leaves(import_dataset(path, "mine/cube", map=states, config=config).path)
    assert leaves[key][:, 0].tolist() == [2, 3, 4, 10, 11]
    assert leaves["next", *key][:, 0].tolist() == [3, 4, 5, 11, 12]
    assert leaves["next", "info", "cube"][:, 0].tolist() == [6, 8, 10, 22, 24]
    assert leaves["next", "terminated"][:, 0].tolist() == [0, 0, 1, 0, 0]
    assert leaves["next", "truncated"][:, 0].tolist() == [0, 0, 0, 0, 1]
