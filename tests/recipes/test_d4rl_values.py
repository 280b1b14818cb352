"""Every value of a D4RL file, in every layout of its scripts, read back from the disk."""

from __future__ import annotations

import ast
import itertools
import json
import re
import string
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict

from datasets_cli.config import Config
from datasets_cli.errors import IntegrityError, SourceError
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.recipe import TRAJECTORY_END
from datasets_cli.recipes.d4rl import catalogue, reader
from datasets_cli.schema import columns, summary
from datasets_cli.schema.steps import StepRows
from datasets_cli.schema.transitions import Transitions, iterate_rows
from datasets_cli.sources.resource import Digests, Resource, verify
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.manifest import Manifest, read_manifest
from tests.support import values
from tests.support.d4rl_files import LAYOUTS, floats, save, steps
from tests.support.refusals import refused
from tests.support.values import assert_d4rl, assert_same, expect, read_leaves, read_source

ANYTHING = InstallOptions(accept_any=True)


def source_path(layout: str, tmp_path: Path) -> Path:
    (resource,) = catalogue.resources(LAYOUTS[layout].name, None)
    path = tmp_path / "source" / resource.filename
    path.parent.mkdir(exist_ok=True)
    return path


def install(layout: str, tmp_path: Path, config: Config, wish: InstallOptions = ANYTHING) -> Path:
    path = source_path(layout, tmp_path)
    if not path.exists():
        LAYOUTS[layout].write(path)
    return install_dataset(
        f"d4rl/{LAYOUTS[layout].name}", config, replace(wish, source=str(path.parent))
    ).path


def install_columns(columns: dict[str, Any], tmp_path: Path, config: Config) -> Manifest:
    save(source_path("mujoco_v0", tmp_path), columns, compression=None)
    return read_manifest(install("mujoco_v0", tmp_path, config))


# The values.


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_value_equals_the_source_file(layout: str, tmp_path: Path, config: Config) -> None:
    folder = install(layout, tmp_path, config)
    assert_d4rl(folder, source_path(layout, tmp_path), LAYOUTS[layout].max_episode_steps)


def test_the_checker_imports_nothing_that_it_checks() -> None:
    imported = [
        getattr(node, "module", None) or node.names[0].name
        for node in ast.walk(ast.parse(Path(values.__file__).read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert "numpy" in imported
    assert not [name for name in imported if name.startswith(("datasets_cli", "tests"))]


def test_no_two_rows_of_a_source_are_equal(tmp_path: Path) -> None:
    LAYOUTS["medium_expert"].write(tmp_path / "file.hdf5")
    columns = read_source(tmp_path / "file.hdf5")
    for name in columns.keys() - {"terminals", "timeouts"}:
        rows = {row.tobytes() for row in columns[name][:, ...]}
        assert len(rows) > len(columns[name]) - 8, name  # two halves have the same odd numbers


@pytest.mark.parametrize("layout", ["mujoco_v2", "kitchen", "minigrid"])
def test_tensordict_opens_the_folder(layout: str, tmp_path: Path, config: Config) -> None:
    folder = install(layout, tmp_path, config)
    opened = TensorDict.load_memmap(folder)
    found = {
        key if isinstance(key, tuple) else (key,): leaf.numpy()
        for key, leaf in opened.items(include_nested=True, leaves_only=True)
    }
    assert_same(found, read_leaves(folder))


def test_torchrl_samples_the_folder(tmp_path: Path, config: Config) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torchrl.data import TensorDictReplayBuffer, TensorStorage

    folder = install("mujoco_v2", tmp_path, config)
    opened = TensorDict.load_memmap(folder)
    buffer = TensorDictReplayBuffer(storage=TensorStorage(opened), batch_size=64)
    sample = buffer.sample()
    expected = opened[sample["index"]]
    for key in expected.keys(include_nested=True, leaves_only=True):
        assert torch.equal(sample[key].nan_to_num(), expected[key].nan_to_num())


# Blocks.


@pytest.mark.parametrize("layout", ["narrow_chunks", "mujoco_v2", "antmaze_v0", "minigrid"])
@pytest.mark.parametrize("block_rows", [1, 2, 3, 7])
def test_block_boundaries_leave_no_trace(
    layout: str,
    block_rows: int,
    tmp_path: Path,
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = read_manifest(install(layout, tmp_path, config))
    monkeypatch.setattr(columns, "BLOCK_ROWS", block_rows)
    in_blocks = read_manifest(install(layout, tmp_path, config, replace(ANYTHING, force=True)))
    assert in_blocks.files == whole.files
    assert in_blocks.successors == whole.successors


@st.composite
def recordings(draw: st.DrawFn) -> tuple[dict[str, np.ndarray], int, list[int]]:
    """Return random steps, a step limit, and where blocks begin and end."""
    num_steps = draw(st.integers(1, 16))
    flags = st.lists(st.booleans(), min_size=num_steps, max_size=num_steps).map(np.array)
    numbers = np.arange(1.0, 2 * num_steps + 1).reshape(num_steps, 2)
    source = {
        "observations": numbers,
        "actions": 100 + numbers,
        "rewards": 200 + numbers[:, 0],
        "infos/qpos": 300 + numbers,
        "terminals": draw(flags),
    }
    if draw(st.booleans()):
        source["timeouts"] = draw(flags)
    if draw(st.booleans()):
        source["next_observations"] = 400 + numbers
    cuts = draw(st.sets(st.integers(0, num_steps))) | {0, num_steps}
    return source, draw(st.integers(1, 6)), sorted(cuts)


@settings(max_examples=100)
@given(recordings())
def test_any_steps_cut_anywhere_give_the_rows_of_the_slow_loop(
    recording: tuple[dict[str, np.ndarray], int, list[int]],
) -> None:
    source, limit, cuts = recording
    blocks, age = [], 0
    for start, stop in itertools.pairwise(cuts):
        block = {reader._key(name): rows[start:stop] for name, rows in source.items()}
        if "timeouts" not in source:
            block[TRAJECTORY_END], age = reader._time_limits(
                source["terminals"][start:stop], age, limit
            )
        blocks.append(block)
    final: list[StepRows] = []
    transitions = Transitions("random/steps", final=final.append)
    found = list(iterate_rows(transitions, iter(blocks)))

    expected = expect(source, limit)
    wanted = {key: rows for key, rows in expected.leaves.items() if key != ("episode",)}
    keys = found[0] if found else ()
    assert_same({key: np.concatenate([rows[key] for rows in found]) for key in keys}, wanted)
    keys = final[0] if final else ()
    found_final = {key: np.concatenate([rows[key] for rows in final]) for key in keys}
    assert_same(found_final, expected.final)


# What the manifest says.


def test_manifest_has_reference_scores_and_step_limit(tmp_path: Path, config: Config) -> None:
    metadata = read_manifest(install("mujoco_v0", tmp_path, config)).metadata
    assert metadata["ref_min_score"] == pytest.approx(-20.272305)
    assert metadata["ref_max_score"] == pytest.approx(3234.3)
    assert metadata["max_episode_steps"] == 1000


def test_manifest_keeps_metadata_scalars_and_names_the_weights(
    tmp_path: Path, config: Config
) -> None:
    metadata = read_manifest(install("mujoco_v2", tmp_path, config)).metadata
    assert metadata["file_metadata"] == {
        "algorithm": "SAC",
        "iteration": 1200,
        "policy/nonlinearity": "relu",
        "policy/output_distribution": "tanh_gaussian",
    }
    layers = ("fc0", "fc1", "last_fc", "last_fc_log_std")
    parts = [f"metadata/policy/{layer}/{part}" for layer in layers for part in ("bias", "weight")]
    assert metadata["dropped_fields"] == sorted(parts)


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        ("antmaze_v0", ["issue 77", "issue 199"]),
        ("antmaze_v2", ["HIQL"]),
        ("maze2d", ["issue 85"]),
        ("adroit_human_v0", ["issue 137", "the recording is over"]),
        ("kitchen", ["own row"]),
        ("mujoco_v2", []),
        ("mujoco_v2_older", ["state after each step"]),
        ("mujoco_v1_replay", ["one value for a whole episode"]),
    ],
)
def test_manifest_names_the_known_traps(
    layout: str, words: list[str], tmp_path: Path, config: Config
) -> None:
    traps = read_manifest(install(layout, tmp_path, config)).metadata.get("known_traps", [])
    assert len(traps) == len(words)
    assert all(word in trap for word, trap in zip(words, traps, strict=True))


def test_manifest_says_where_trajectories_end_without_timeouts(
    tmp_path: Path, config: Config
) -> None:
    manifest = read_manifest(install("flow", tmp_path, config))
    assert manifest.metadata["trajectory_ends"] == "terminals and every 500 steps"
    assert any("no timeouts" in note for note in manifest.metadata["notes"])


@pytest.mark.parametrize("chunk_rows", [1 << 20, 1, 3])
def test_statistics_equal_those_of_the_source(
    chunk_rows: int, tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summary, "CHUNK_ROWS", chunk_rows)
    found = read_manifest(install("mujoco_v2", tmp_path, config)).statistics
    source = read_source(source_path("mujoco_v2", tmp_path))
    rewards = source["rewards"].astype(np.float64)  # every step is a transition
    ends = np.flatnonzero(source["terminals"] | source["timeouts"]) + 1
    episodes = np.split(rewards, ends)
    numbers = {"reward": rewards, "return": np.array([part.sum() for part in episodes])}
    numbers["length"] = np.array([len(part) for part in episodes])
    assert found.keys() == numbers.keys()
    for name, column in numbers.items():
        expected = [column.mean(), column.std(), column.min(), column.max()]
        assert [found[name][key] for key in ("mean", "std", "min", "max")] == pytest.approx(
            expected, rel=1e-12
        )


@pytest.mark.parametrize("odd", [np.nan, np.inf, 1e200])
def test_rewards_that_have_no_statistics_are_no_error(
    odd: float, tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summary, "CHUNK_ROWS", 5)
    columns = steps(tmp_path, dtype="float64")
    columns["rewards"][7] = odd
    statistics = install_columns(columns, tmp_path, config).statistics
    assert statistics["reward"]["std"] is None
    assert statistics["reward"]["max"] == (odd if np.isfinite(odd) else None)
    assert (statistics["reward"]["min"] is None) is bool(np.isnan(odd))


# Files that are not what they should be.


@pytest.mark.parametrize("dtype", ["S8", h5py.string_dtype()])
def test_text_fields_are_kept_and_named(dtype: Any, tmp_path: Path, config: Config) -> None:
    texts = np.array([b"up", "dówn".encode(), b"", b"caf\xe9"] * 10).astype(dtype)
    path = source_path("mujoco_v0", tmp_path)
    save(path, steps(tmp_path) | {"infos/task": texts}, compression=None)
    folder = install("mujoco_v0", tmp_path, config)
    manifest = read_manifest(folder)
    assert [text.key for text in manifest.texts] == [("info", "task")]
    assert set(values.read_texts(folder)["info", "task"]) == {"up", "dówn", "", "caf\udce9"}
    assert_d4rl(folder, path, LAYOUTS["mujoco_v0"].max_episode_steps)
    notes = manifest.metadata["notes"]
    assert any("info.task" in note and "text=True" in note for note in notes)
    assert "1 distinct texts are not UTF-8; their bytes become surrogate escapes" in notes
    assert "dropped_fields" not in manifest.metadata


def test_fields_of_variable_length_are_dropped_and_named(tmp_path: Path, config: Config) -> None:
    def write(path: Path) -> None:
        save(path, steps(tmp_path), compression=None)
        with h5py.File(path, "a") as file:
            ragged = file.create_dataset("infos/ragged", (40,), h5py.vlen_dtype(np.float32))
            ragged[0] = np.ones(3)

    write(source_path("mujoco_v0", tmp_path))
    manifest = read_manifest(install("mujoco_v0", tmp_path, config))
    assert manifest.metadata["dropped_fields"] == ["infos/ragged"]
    assert any("infos/ragged" in note for note in manifest.metadata["notes"])
    assert not [column for column in manifest.columns if column.key[0] == "info"]


@pytest.mark.parametrize("num_entries", [0, 1, 39, 41])
def test_infos_of_another_length_are_left_out_with_a_note(
    num_entries: int, tmp_path: Path, config: Config
) -> None:
    right = steps(tmp_path) | {"infos/qvel": floats(tmp_path, "qvel", 40, 3)}
    save(tmp_path / "right.hdf5", right)
    manifest = install_columns(right | {"infos/qpos": np.zeros((num_entries, 3))}, tmp_path, config)
    assert manifest.metadata["dropped_fields"] == ["infos/qpos"]
    (note,) = manifest.metadata["notes"]
    assert note == (
        "left out, because they do not contain numbers or text for each of the 40 steps: "
        f"infos/qpos [{num_entries}, 3] float64"
    )
    assert_d4rl(CacheRoot(config.root).dataset(manifest.id), tmp_path / "right.hdf5")


@pytest.mark.parametrize("name", ["next_observations", "camera/angle", "infos"])
def test_any_other_column_of_another_length_is_left_out(
    name: str, tmp_path: Path, config: Config
) -> None:
    save(tmp_path / "right.hdf5", steps(tmp_path))
    manifest = install_columns(steps(tmp_path) | {name: np.zeros((41, 11))}, tmp_path, config)
    assert manifest.metadata["dropped_fields"] == [name]
    assert f"{name} [41, 11] float64" in manifest.metadata["notes"][0]
    assert_d4rl(CacheRoot(config.root).dataset(manifest.id), tmp_path / "right.hdf5")


def test_unknown_fields_are_kept_under_info(tmp_path: Path, config: Config) -> None:
    columns = steps(tmp_path) | {"camera/angle": floats(tmp_path, "angle", 40)}
    manifest = install_columns(columns, tmp_path, config)
    assert ("info", "camera", "angle") in [column.key for column in manifest.columns]
    assert any("camera/angle" in note for note in manifest.metadata["notes"])


def test_metadata_that_json_lacks_becomes_text(tmp_path: Path, config: Config) -> None:
    columns = steps(tmp_path) | {"metadata/score": np.float32("nan"), "metadata/lr": 0.5}
    metadata = install_columns(columns, tmp_path, config).metadata
    assert metadata["file_metadata"] == {"lr": 0.5, "score": "nan"}


@pytest.mark.parametrize(
    ("changes", "attributes"),
    [
        ({"actions": np.zeros((39, 3))}, {"expected": "[40] in each"}),
        ({"timeouts": np.zeros(41)}, {"expected": "[40] in each"}),
        ({"rewards": None}, {"key": "rewards"}),
        (dict.fromkeys(steps(Path()), 1.0), {"expected": "[] in each"}),
        ({"episode_terminals": np.zeros(40)}, {"key": "episode_terminals"}),
        ({"terminals": np.full(40, 2)}, {"key": ("next", "terminated"), "row": 0}),
        ({"next_observations": np.zeros((40, 12))}, {"key": ("next", "observation")}),
    ],
)
def test_damaged_file_is_refused_by_name(
    changes: dict[str, Any], attributes: dict[str, Any], tmp_path: Path, config: Config
) -> None:
    columns = {key: rows for key, rows in (steps(tmp_path) | changes).items() if rows is not None}
    with refused(SourceError, id="d4rl/hopper-medium-v0", **attributes):
        install_columns(columns, tmp_path, config)


def test_file_without_any_transition_is_refused(tmp_path: Path, config: Config) -> None:
    columns = steps(tmp_path, terminals=[], timeouts=range(40))
    with refused(SourceError, id="d4rl/hopper-medium-v0"):
        install_columns(columns, tmp_path, config)


def test_hard_linked_columns_are_both_read(tmp_path: Path, config: Config) -> None:
    path = source_path("mujoco_v0", tmp_path)
    LAYOUTS["mujoco_v0"].write(path)
    with h5py.File(path, "a") as file:
        file["infos/again"] = file["actions"]
    leaves = read_leaves(install("mujoco_v0", tmp_path, config))
    assert leaves["info", "again"].tobytes() == leaves["action",].tobytes()


# The catalogue, and the two published versions of a file.


class Seen(Digests):
    """What a file of this content would have shown."""

    def __init__(self, size: int, sha256: str) -> None:
        self.size = size
        self.sha256 = sha256

    def hex(self) -> dict[str, str]:
        return {"sha256": self.sha256}


def row_of(name: str) -> dict[str, str]:
    return catalogue._table()[name]


def test_both_published_versions_of_a_v2_file_are_accepted() -> None:
    row, (resource,) = row_of("hopper-medium-v2"), catalogue.resources("hopper-medium-v2", None)
    seen = {
        "": Seen(int(row["bytes"]), row["sha256"]),
        catalogue.OLDER: Seen(int(row["older_bytes"]), row["older_sha256"]),
    }
    for version, digests in seen.items():
        file = verify(resource, Path("file"), "url", digests)
        assert (file.checked, file.version) == ("sha256", version)
    with pytest.raises(IntegrityError) as caught:
        verify(resource, Path("file"), "url", Seen(int(row["bytes"]), row["older_sha256"]))
    assert caught.value.path == Path("file")


def test_older_version_is_named_in_the_manifest(
    tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = source_path("mujoco_v2_older", tmp_path)
    LAYOUTS["mujoco_v2_older"].write(path)
    digests = Digests({"sha256"})
    digests.read(path)
    older = {"older_bytes": str(digests.size), "older_sha256": digests.hex()["sha256"]}
    row = row_of("hopper-expert-v2") | older
    monkeypatch.setattr(catalogue, "_table", lambda: {row["name"]: row})
    (file,) = read_manifest(
        install("mujoco_v2_older", tmp_path, config, InstallOptions())
    ).resources
    assert (file["checked"], file["version"]) == ("sha256", catalogue.OLDER)


def test_every_row_is_well_formed() -> None:
    rows = [*catalogue._table().values()]
    assert len({row["name"] for row in rows}) == len(rows)
    for row in rows:
        assert re.fullmatch(r"[a-z0-9_]+/[\w.-]+\.hdf5", row["path"]), row
        assert int(row["max_episode_steps"]) > 0, row
        assert bool(row["bytes"]) == bool(row["sha256"]), row
        assert bool(row["older_bytes"]) == bool(row["older_sha256"]), row
        for digest in filter(None, (row["sha256"], row["older_sha256"])):
            assert len(digest) == 64, row
            assert set(digest) <= set(string.hexdigits.lower()), row


def test_all_rows_but_one_have_reference_scores_and_most_a_checksum() -> None:
    rows = catalogue.datasets(None)
    scored = [row for row in rows if row.details["ref_max_score"] is not None]
    assert {row.name for row in rows} - {row.name for row in scored} == {"carla-town-render-v0"}
    assert all(row.details["ref_max_score"] > row.details["ref_min_score"] for row in scored)
    assert sum(row.size is not None and row.size > 0 for row in rows) >= 101
    assert sum(bool(row["older_sha256"]) for row in catalogue._table().values()) >= 24


def test_every_resource_has_the_publisher_first_and_then_the_mirror() -> None:
    for row in catalogue.datasets(None):
        (resource,) = catalogue.resources(row.name, None)
        assert isinstance(resource, Resource)
        assert resource.urls[0] == row.details["url"]
        assert resource.urls[1].endswith(f"/imone/D4RL/resolve/main/{resource.filename}")
        assert resource.size == row.size


def test_no_two_files_share_a_name() -> None:
    paths = {row["path"] for row in catalogue._table().values()}
    assert len({path.rpartition("/")[2] for path in paths}) == len(paths)


def test_manifest_is_plain_json(tmp_path: Path, config: Config) -> None:
    folder = install("mujoco_v2", tmp_path, config)
    assert "NaN" not in (folder / "manifest.json").read_text()
    assert json.loads((folder / "manifest.json").read_text())["id"] == "d4rl/hopper-medium-v2"
