"""Minari: every value of the source in each of its forms, and what is rejected."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import minari
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from datasets_cli.catalogue.entries import load_recipe
from datasets_cli.config import Config
from datasets_cli.errors import AccessError, SourceError, UsageError, install_extra
from datasets_cli.recipe import Source
from datasets_cli.sources.http import Http
from datasets_cli.store.cache_root import check_id
from datasets_cli.store.dataset import Dataset
from tests.recipes.conftest import Install
from tests.support import minari_files as files
from tests.support.minari_values import by_h5py, by_minari, expected, texts_by_minari
from tests.support.origin import Origin
from tests.support.refusals import refused
from tests.support.values import assert_same, everything

RECIPE = load_recipe("minari")
HUB = "https://huggingface.co/"
DOOR = "D4RL/door/human-v2"


@pytest.fixture
def door(tmp_path: Path) -> Path:
    return files.unpack_door(tmp_path / "minari")


# Values


def test_every_value_of_the_real_door_is_minari_s_own(door, install):
    dataset = install(door, DOOR)
    assert (len(dataset), dataset.manifest.num_trajectories) == (6729, 25)
    right = expected(by_minari(DOOR))
    assert ("next", "info", "success") in right
    assert_same(everything(dataset), right)


def test_small_blocks_give_the_same_values(door, install, monkeypatch):
    monkeypatch.setattr("datasets_cli.schema.columns.BLOCK_ROWS", 97)
    assert_same(everything(install(door, DOOR)), expected(by_h5py(door)))


@pytest.mark.parametrize(
    "build", [files.gap_in_numbers, files.no_spaces, files.zero_width, files.big_endian]
)
def test_every_value_is_the_file_s(build, install):
    """Minari's own reader gives the values of the other files: see below."""
    folder = build()
    assert_same(everything(install(folder)), expected(by_h5py(folder)))


def test_frames_that_only_0_5_3_encoded_are_decoded_too(install):
    folder = files.jpeg_beyond_the_spaces()
    (episode,) = by_h5py(folder)
    with h5py.File(folder / "main_data.hdf5") as file:
        for path in ("observations", "infos/view"):
            stored = [row.tobytes() for row in file["episode_0"][path]]
            frames = [np.asarray(Image.open(io.BytesIO(row))) for row in stored]
            episode[tuple(path.split("/"))] = np.stack(frames)
    dataset = install(folder)
    assert_same(everything(dataset), expected([episode]))
    assert "decoded from JPEG" in dataset.manifest.metadata["notes"][-1]


def test_long_episodes_of_frames_are_cut_into_blocks(install, monkeypatch):
    monkeypatch.setattr("datasets_cli.schema.columns.BLOCK_BYTES", 1 << 16)
    folder = files.build(files.frames(64, 64, 3), files.box(1), (9, 1, 20))
    assert_same(everything(install(folder)), expected(by_minari(files.NAME)))
    assert max(lengths(folder)) == 2


def test_short_episodes_share_a_block(door):
    assert lengths(door) == [6729]


def lengths(folder: Path) -> list[int]:
    return [len(block.columns["cut",]) for block in RECIPE.blocks(source(folder))]


def source(folder: Path) -> Source:
    paths = {name: folder / name for name in ("metadata.json", "main_data.hdf5")}
    return Source(files.NAME, paths)


# What is left out


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"x": [1.0] * 4}, {}),
        ({}, {"x": [1.0] * 4}),
        ({"x": [1.0] * 4}, {"x": [1.0] * 3}),
        ({"x": [1.0] * 9}, {"x": [1.0] * 9}),
        ({"x": 3.0}, {"x": 3.0}),
    ],
)
def test_an_info_that_no_leaf_can_hold_is_left_out_and_named(first, second, install):
    rng = np.random.default_rng(0)
    space = files.box(2)
    infos = [{"kept": [0.5] * 4, **info} for info in (first, second)]
    buffers = [files.episode(3, space, space, rng, infos=info) for info in infos]
    dataset = install(files.write(space, space, buffers))
    assert [key for key in dataset.keys if key[0] == "info"] == [("info", "kept")]
    (note,) = dataset.manifest.metadata["notes"]
    assert "info.x" in note


def test_episodes_without_a_step_are_left_out_and_counted(install):
    def empty(file: h5py.File) -> None:
        file.create_group("episode_3")
        for path in ("actions", "rewards", "terminations", "truncations"):
            file["episode_1"][path].resize(0, axis=0)
        file["episode_1/observations"].resize(1, axis=0)

    folder = files.change(files.build(files.box(2), files.box(1)), empty)
    dataset = install(folder)
    right = [episode for episode in by_h5py(folder) if len(episode.get(("rewards",), ()))]
    assert_same(everything(dataset), expected(right))
    assert dataset.manifest.metadata["empty_episodes"] == 2


def test_what_an_episode_has_beside_minari_s_parts_becomes_info(install):
    def edit(file: h5py.File) -> None:
        file["episode_0/state/qpos"] = np.arange(8.0).reshape(4, 2)

    dataset = install(files.change(files.build(files.box(2), files.box(1), (3,)), edit))
    rows = everything(dataset)
    assert rows["info", "state", "qpos"].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert rows["next", "info", "state", "qpos"].tolist() == [[2, 3], [4, 5], [6, 7]]


# What the publisher says


def test_the_manifest_has_the_publisher_s_facts(door, install):
    metadata = install(door, DOOR).manifest.metadata
    published = json.loads((door / "metadata.json").read_text())
    assert metadata == published | {"notes": []}


def test_numbers_that_json_has_not_are_none_in_the_manifest(install):
    folder = files.build(files.box(2), files.box(1))
    files.change_metadata(folder, ref_max_score=float("inf"), ref_min_score=float("nan"))
    metadata = install(folder).manifest.metadata
    assert metadata["ref_max_score"] is None
    assert "Infinity" in metadata["observation_space"]


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"total_steps": 8}, "total_steps 8; the file has 9"),
        ({"total_episodes": 4}, "total_episodes 4; the file has 3"),
        ({"minari_version": "0.6.0"}, "only versions up to 0.5.4"),
        ({"dataset_id": "other-v1"}, "other-v1"),
    ],
)
def test_a_doubt_is_a_note(entries, words, install):
    folder = files.change_metadata(files.build(files.box(2), files.box(1)), **entries)
    (note,) = install(folder).manifest.metadata["notes"]
    assert words in note


@pytest.mark.parametrize("version", ["0.5.4.dev3", "0.4"])
def test_a_version_of_minari_that_is_known_is_no_doubt(version, install):
    folder = files.build(files.box(2), files.box(1))
    files.change_metadata(folder, minari_version=version)
    assert install(folder).manifest.metadata["notes"] == []


@pytest.mark.filterwarnings("ignore")
def test_torchrl_opens_what_was_installed(door, install):
    from torchrl.data import Unbounded
    from torchrl.data.datasets import MinariExperienceReplay

    dataset = install(door, DOOR)
    root = dataset.folder.parents[2]
    replay = MinariExperienceReplay(DOOR, batch_size=4, root=root, download=False)
    assert len(replay) == 6729
    assert replay.metadata["observation_space"] == Unbounded((39,), dtype=torch.float64)
    assert replay.metadata["env_spec"]["id"] == "AdroitHandDoor-v1"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("build", [files.nested, files.discrete, files.text_in_dict])
def test_torchrl_reads_the_spaces_that_it_writes(build, install, monkeypatch):
    from torchrl.data.datasets import minari_data

    dataset = install(build())
    written = json.loads((dataset.folder / "env_metadata.json").read_text())
    for name in ("observation", "action"):
        space = getattr(minari.load_dataset(files.NAME), f"{name}_space")
        right = json.loads(json.dumps(minari_data._spec_to_dict(space)))
        found = written[f"{name}_space"]
        assert minari_data._proc_spec(found) == minari_data._proc_spec(right)
    assert written["total_steps"] == 9


def test_spaces_that_torchrl_has_not_keep_gymnasium_s_names(install):
    written = install(files.multi()).folder / "env_metadata.json"
    metadata = json.loads(written.read_text())
    subspaces = metadata["observation_space"]["subspaces"]
    assert subspaces["bits"] == {"type": "MultiBinary", "n": 6, "dtype": "int8", "shape": [6]}
    assert subspaces["dice"]["nvec"] == [3, 9]
    assert metadata["action_space"]["shape"] == [2, 2]


def test_a_tuple_space_keeps_its_order(install):
    metadata = json.loads((install(files.tuples()).folder / "env_metadata.json").read_text())
    kinds = [item["type"] for item in metadata["action_space"]["subspaces"]]
    assert kinds == ["Box", "Discrete"]


# Refusals


def too_few_observations(file: h5py.File) -> None:
    file["episode_1/observations"].resize(4, axis=0)


def too_few_flags(file: h5py.File) -> None:
    file["episode_1/truncations"].resize(4, axis=0)


def no_actions(file: h5py.File) -> None:
    del file["episode_1/actions"]


def other_observations(file: h5py.File) -> None:
    del file["episode_1/observations"]
    file["episode_1/observations"] = np.zeros((6, 3), np.float32)


def no_episodes(file: h5py.File) -> None:
    for name in list(file):
        file.move(name, name.replace("episode", "trajectory"))


def an_external_link(file: h5py.File) -> None:
    file["episode_1/infos/x"] = h5py.ExternalLink("/etc/hostname", "/")


def only_text(file: h5py.File) -> None:
    for name in file:
        rows = len(file[name]["actions"])
        del file[name]["actions"]
        file[name]["actions"] = ["click"] * rows


def a_name_twice(file: h5py.File) -> None:
    for name in file:
        file[name]["infos/state"] = np.zeros(len(file[name]["rewards"]))
        file[name]["state"] = np.zeros(len(file[name]["rewards"]))


@pytest.mark.parametrize(
    ("edit", "attributes"),
    [
        (too_few_observations, {"key": "observations", "expected": 6, "found": [4, 2]}),
        (too_few_flags, {"key": "truncations", "expected": 5, "found": [4]}),
        (no_actions, {"key": "actions"}),
        (other_observations, {"key": "observations", "found": "float32 [3]"}),
        (no_episodes, {"expected": "episode_0", "found": ["trajectory_0", "trajectory_1"]}),
        (an_external_link, {"key": "x", "found": "an ExternalLink"}),
        (only_text, {"key": "action", "expected": "numbers"}),
        (a_name_twice, {"key": "info.state"}),
    ],
)
def test_a_file_that_is_not_as_minari_writes_is_refused(edit, attributes, install):
    folder = files.change(files.build(files.box(2), files.box(1), (5, 5)), edit)
    with refused(SourceError, id=f"minari/{files.NAME}", **attributes):
        install(folder)


@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: data[:2]])
def test_a_damaged_frame_is_refused_and_named(damage, install):
    def edit(file: h5py.File) -> None:
        frames = file["episode_0/observations"]
        frames[2] = damage(frames[2])

    folder = files.change(files.build(files.frames(40, 36, 3), files.box(1), (5,)), edit)
    with pytest.raises(SourceError) as caught:
        install(folder)
    assert "episode_0/observations, row 2" in str(caught.value)


def test_frames_of_two_sizes_are_refused(install):
    rng = np.random.default_rng(0)
    sizes = [files.frames(40, 36), files.frames(36, 40)]
    buffers = [files.episode(3, size, files.box(1), rng) for size in sizes]
    folder = files.write(sizes[0], files.box(1), buffers)
    with pytest.raises(SourceError) as caught:
        install(folder)
    assert (caught.value.expected, caught.value.found) == ([40, 36], [36, 40])


@pytest.mark.parametrize("content", [b"<!DOCTYPE html><p>Not found", b"version https://git-lfs"])
@pytest.mark.parametrize("name", ["metadata.json", "main_data.hdf5"])
def test_what_a_server_sends_instead_of_the_file_is_refused(name, content, door, install):
    (door / name).write_bytes(content)
    with pytest.raises(SourceError) as caught:
        install(door, DOOR)
    assert str(caught.value.found).startswith(("a web page", "a Git LFS pointer"))


def test_a_folder_without_metadata_is_refused(door, install):
    (door / "metadata.json").unlink()
    with refused(UsageError, argument="source", id="minari/D4RL/door/human-v2"):
        install(door, DOOR)


@pytest.mark.parametrize(
    ("entries", "attributes"),
    [
        ({"data_format": "zarr"}, {"key": "data_format", "found": "zarr"}),
        ({"observation_space": "{"}, {"path": "metadata.json: observation_space"}),
        ({"action_space": '{"type": "Dict", "subspaces": [3]}'}, {"key": "action_space"}),
        ({"action_space": "7"}, {"key": "action_space", "found": "7"}),
    ],
)
def test_metadata_that_cannot_be_meant_is_refused(entries, attributes, door, install):
    with refused(SourceError, **attributes):
        install(files.change_metadata(door, **entries), DOOR)


def test_a_dataset_of_empty_episodes_is_refused(install):
    folder = files.build(files.box(2), files.box(1), ())
    files.change(folder, lambda file: file.create_group("episode_0"))
    with refused(SourceError, id="minari/test/built-v0"):
        install(folder)


# The catalogue and the files


class Pages:
    """A web of these JSON documents and no other."""

    def __init__(self, documents: dict[str, Any]) -> None:
        self.documents = {HUB + path: document for path, document in documents.items()}

    def json(self, url: str) -> Any:
        if url not in self.documents:
            raise AccessError(f"{url}: 404")
        return self.documents[url]

    def pages(self, url: str) -> Iterator[Any]:
        yield self.json(url)


def tree(*names: str, kind: str = "file") -> list[dict[str, Any]]:
    return [
        {"type": kind, "path": f"door/human-v2/data/{name}", "size": 9, "oid": "git"}
        for name in names
    ]


def test_the_shipped_catalogue_is_minari_s_documentation_s():
    rows = list(RECIPE.datasets(None))
    assert len(rows) == len({row.name for row in rows}) >= 392
    assert all(check_id(f"minari/{row.name}") for row in rows)
    (row,) = [row for row in rows if row.name == DOOR]
    assert (row.num_transitions, row.num_trajectories) == (6729, 25)
    assert row.details["remote"] == f"farama-minari/{DOOR}"


def test_the_published_catalogue_replaces_the_shipped_one_but_for_the_community_s():
    resolve = "datasets/farama-minari/{}/resolve/main/"
    web = Pages(
        {
            "api/datasets?author=farama-minari": [
                {"id": f"farama-minari/{name}"} for name in ("D4RL", "lone-v0", "notes")
            ],
            resolve.format("D4RL") + "namespace_metadata.json": {"datasets": [DOOR, "D4RL/new-v0"]},
            resolve.format("lone-v0") + "data/metadata.json": {"total_steps": 5},
        }
    )
    rows = {row.name: row for row in RECIPE.datasets(web)}
    shipped = {row.name: row for row in RECIPE.datasets(None)}
    assert {name for name in rows if not name.startswith("community/")} == {
        DOOR,
        "D4RL/new-v0",
        "lone-v0",
    }
    assert rows[DOOR] == shipped[DOOR]
    assert rows["lone-v0"].num_transitions == 5
    assert sum(name.startswith("community/") for name in rows) == 52


def test_files_are_pinned_to_a_commit_with_their_size_and_sha256():
    api = "api/datasets/farama-minari/D4RL"
    small, large = tree("metadata.json", "main_data.hdf5")
    large["lfs"] = {"oid": "ab" * 32, "size": 3507448, "pointerSize": 132}
    web = Pages({api: {"sha": "c0ffee"}, f"{api}/tree/c0ffee/door/human-v2/data": [small, large]})
    metadata, data = RECIPE.resources(DOOR, web)
    base = f"{HUB}datasets/farama-minari/D4RL/resolve/c0ffee/door/human-v2/data/"
    assert metadata.urls[0] == f"{base}metadata.json"
    assert (metadata.size, dict(metadata.checksums)) == (9, {})
    mirror = base.replace("c0ffee", "main")  # a plain mirror may hold the main branch alone
    assert data.urls == (f"{base}main_data.hdf5", f"{mirror}main_data.hdf5")
    assert (data.size, dict(data.checksums)) == (3507448, {"sha256": "ab" * 32})


@pytest.mark.parametrize("web", [None, Pages({})])
def test_without_an_api_the_newest_files_are_taken_unchecked(web):
    metadata, data = RECIPE.resources(DOOR, web)
    base = f"{HUB}datasets/farama-minari/D4RL/resolve/main/door/human-v2/data/"
    assert metadata.urls == (f"{base}metadata.json",)
    assert data.urls == (f"{base}main_data.hdf5",)
    assert data.size is None
    assert not data.checksums


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        (
            "community/Farama-Antmaze-v5/antmaze-umaze/expert-v1",
            "lukasz-sawala-goat/Farama-Antmaze-v5/resolve/main/antmaze-umaze/expert-v1/data/",
        ),
        ("mine/task-v0", "farama-minari/mine/resolve/main/task-v0/data/"),
        ("alone-v0", "farama-minari/alone-v0/resolve/main/data/"),
    ],
)
def test_a_name_says_the_repository_and_the_folder(name, folder):
    metadata, _ = RECIPE.resources(name, None)
    assert metadata.urls == (f"{HUB}datasets/{folder}metadata.json",)


@pytest.mark.parametrize("listing", [tree("0", "1", kind="directory"), tree("metadata.json")])
def test_a_dataset_in_neither_form_is_refused_before_the_download(listing):
    api = "api/datasets/farama-minari/D4RL"
    web = Pages({api: {"sha": "c0ffee"}, f"{api}/tree/c0ffee/door/human-v2/data": listing})
    with pytest.raises(SourceError) as caught:
        RECIPE.resources(DOOR, web)
    assert caught.value.expected == ["main_data.hdf5", "metadata.json"]


def test_an_answer_that_is_not_hugging_face_s_is_refused():
    with pytest.raises(SourceError) as caught:
        RECIPE.resources(DOOR, Pages({"api/datasets/farama-minari/D4RL": ["hello"]}))
    assert caught.value.advice == "Check --mirror."


BUILDERS = [*files.PLAIN, *files.JPEG, *files.TEXTS[1:]]
FORMATS = ["hdf5", "arrow", "parquet"]

# Minari's writer does not write these in the Arrow form: h5py changed them, an info has a row for
# each action, or frames of unequal length are actions.
HDF5_ALONE = (
    *(files.big_endian, files.no_infos, files.no_seeds, files.odd_names_and_types),
    *(files.odd_numbers, files.changing_texts, files.infos_of_both_lengths),
    files.jpeg_of_unequal_length,
)

EVERY = [
    (build, form)
    for number, build in enumerate(BUILDERS)
    for form in ("hdf5", FORMATS[1 + number % 2])
    if build not in files.UNREADABLE
    if form == "hdf5" or build not in HDF5_ALONE
]


@pytest.fixture
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name = getattr(request, "param", "arrow")
    monkeypatch.setattr(files, "DATA_FORMAT", name)
    return str(name)


def assert_is_minari_s(dataset: Dataset) -> None:
    episodes = by_minari(files.NAME)
    for episode in episodes:  # a reward is floating point
        episode["rewards",] = episode["rewards",].astype(np.float64)
    assert_same(everything(dataset), expected(episodes))
    texts = dataset.texts
    found = {key: texts.column(key) for key in texts.keys} if texts else {}
    assert found == texts_by_minari(files.NAME)


@pytest.mark.parametrize(("build", "form"), EVERY, indirect=["form"])
def test_every_value_is_minari_s_own(build: Any, form: str, install: Install) -> None:
    folder = build()
    assert json.loads((folder / "metadata.json").read_text())["data_format"] == form
    assert_is_minari_s(install(folder))


@pytest.mark.parametrize("form", ["arrow", "parquet"], indirect=True)
def test_the_arrow_form_without_spaces_has_the_same_rows(form: str, install: Install) -> None:
    space = files.spaces.Dict({"a": files.box(2), "b": files.frames(7, 7)})
    folder = files.build(space, files.spaces.Discrete(3))
    right = expected(by_minari(files.NAME))
    files.change_metadata(folder, observation_space=None, action_space=None)
    rows = everything(install(folder))
    # The files of this form have rows flat, and nothing else says their shape.
    assert rows["observation", "b"].shape == (9, 49)
    assert_same({key: found.reshape(right[key].shape) for key, found in rows.items()}, right)


# Irregular episodes of the Arrow form


def write_with(*changes: dict[str, Any]) -> Path:
    """Write an episode of three steps for each of these changes."""
    rng = np.random.default_rng(2)
    buffers = [files.episode(3, files.box(2), files.box(1), rng, **change) for change in changes]
    return files.write(files.box(2), files.box(1), buffers)


@pytest.mark.parametrize("form", ["arrow", "parquet"], indirect=True)
def test_an_info_of_two_types_is_widened(form: str, install: Install) -> None:
    infos: list[list[Any]] = [[1, 2, 3, 4], [0.5, 1.5, None, 3.5], [5, None, 7, 8]]
    dataset = install(write_with(*({"infos": {"x": values}} for values in infos)))
    found = dataset.columns(())["info", "x"].tolist()
    assert found[:5] + found[6:7] + found[8:] == [1, 2, 3, 0.5, 1.5, 5, 7]
    assert np.isnan([found[5], found[7]]).all()  # as Minari reads what is missing
    assert "info.x (float64 and int64 to float64)" in dataset.manifest.metadata["notes"][0]


@pytest.mark.parametrize("form", ["arrow", "parquet"], indirect=True)
@pytest.mark.parametrize("terminated", [True, False])
def test_an_episode_without_its_last_observation(
    terminated: bool, form: str, install: Install
) -> None:
    flags = [False, False, True]
    ends = {"terminations": flags, "truncations": [False] * 3}
    cut = {"terminations": [False] * 3, "truncations": flags}
    folder = write_with({}, ends if terminated else cut, {})
    path = folder / "1" / f"part-0.{form}"
    table = read(path)
    rewrite(path, pa.concat_tables([table.slice(0, 3)]))
    dataset = install(folder)
    assert np.diff(dataset.offsets).tolist() == [3, 3 if terminated else 2, 3]
    rows = dataset.columns(())
    observations = np.array(table["observations"].to_pylist(), np.float32)
    assert rows["observation",][3:5].tolist() == observations[:2].tolist()
    assert rows["next", "observation"][3:5].tolist() == observations[1:3].tolist()
    if terminated:
        assert rows["next", "observation"][5].tolist() == [0, 0]
    (note,) = dataset.manifest.metadata["notes"]
    assert "1 episodes have no observation after their last step (episode_1)" in note


def read(path: Path) -> pa.Table:
    if path.suffix == ".parquet":
        return pq.ParquetFile(path).read()
    return pa.ipc.open_file(path).read_all()


def rewrite(path: Path, table: pa.Table) -> None:
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table)


@pytest.mark.parametrize("form", ["arrow", "parquet"], indirect=True)
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda data: data[: len(data) // 2], "1/part-0.* is not a complete"),
        (lambda data: b"<!DOCTYPE html><p>Not found", "a web page"),
    ],
)
def test_a_damaged_episode_is_refused_and_named(
    damage: Any, words: str, form: str, install: Install
) -> None:
    folder = files.nested()
    path = folder / "1" / f"part-0.{form}"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(SourceError, match=words):
        install(folder)


def test_an_episode_of_other_columns_is_refused(form: str, install: Install) -> None:
    folder = write_with({}, {})
    path = folder / "1" / "part-0.arrow"
    rewrite(path, read(path).drop_columns(["actions"]))
    with pytest.raises(SourceError) as caught:
        install(folder)
    assert (caught.value.key, "episode_1" in str(caught.value)) == ("actions", True)


def test_rows_of_another_shape_than_the_space_are_refused(form: str, install: Install) -> None:
    folder = write_with({}, {})
    other = '{"type": "Box", "dtype": "float32", "shape": [3]}'
    files.change_metadata(folder, observation_space=other)
    with pytest.raises(SourceError) as caught:
        install(folder)
    assert (caught.value.expected, caught.value.found) == ([3], [2])


def test_a_missing_episode_is_named(form: str, install: Install) -> None:
    folder = files.nested()
    (folder / "2" / "part-0.arrow").unlink()
    with refused(UsageError, argument="source", id="minari/test/built-v0"):
        install(folder)


def test_without_pyarrow_the_extra_is_named(
    form: str, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = files.nested()
    monkeypatch.setattr("datasets_cli.recipes.minari.catalogue.find_spec", lambda name: None)
    with pytest.raises(UsageError) as caught:
        install(folder)
    assert caught.value.advice == install_extra("parquet")


API = "api/datasets/farama-minari/mine"
RESOLVE = "datasets/farama-minari/mine/resolve/"


def listed(path: str, kind: str = "file") -> dict[str, Any]:
    large = {"lfs": {"oid": "ab" * 32, "size": 77}} if "part" in path else {}
    return {"type": kind, "path": f"task-v0/data/{path}", "size": 9, **large}


def published(form: str, episodes: Any = 3) -> dict[str, Any]:
    folders = [listed(str(number), "directory") for number in range(3)]
    # A mirror may list less than there is.
    parts = [listed(f"{number}/part-0.{form}") for number in range(2)]
    tree = f"{API}/tree/c0ffee/task-v0/data"
    return {
        API: {"sha": "c0ffee"},
        tree: [*folders, listed("metadata.json")],
        f"{tree}?recursive=true": [listed("metadata.json"), *parts],
        f"{RESOLVE}c0ffee/task-v0/data/metadata.json": {
            "data_format": form,
            "total_episodes": episodes,
        },
    }


@pytest.mark.parametrize("form", ["arrow", "parquet"], indirect=True)
def test_each_episode_is_a_file_pinned_to_a_commit(form: str) -> None:
    metadata, *parts = RECIPE.resources("mine/task-v0", Pages(published(form)))
    assert (metadata.filename, metadata.size) == ("metadata.json", 9)
    assert [part.filename for part in parts] == [f"{n}/part-0.{form}" for n in range(3)]
    assert [part.size for part in parts] == [77, 77, None]
    assert dict(parts[0].checksums) == {"sha256": "ab" * 32}
    assert not parts[2].checksums
    base = f"{HUB}{RESOLVE}c0ffee/task-v0/data/"
    assert parts[2].urls == (
        f"{base}2/part-0.{form}",
        f"{base.replace('c0ffee', 'main')}2/part-0.{form}",
    )


def test_a_list_of_several_pages_is_read_to_its_end(config: Config) -> None:
    document = {"data_format": "arrow", "total_episodes": 3}
    first, last = listed("metadata.json"), [listed(f"{n}/part-0.arrow") for n in range(3)]
    tree = f"{API}/tree/c0ffee/task-v0/data"
    with Origin() as origin:
        origin.put(API, b'{"sha": "c0ffee"}')
        origin.put(f"{RESOLVE}c0ffee/task-v0/data/metadata.json", json.dumps(document).encode())
        for path, rest in ((tree, [listed("0", "directory")]), (f"{tree}?recursive=true", last)):
            # As Hugging Face does, which names itself and not the mirror.
            link = f'<{HUB}{path}{"&" if "?" in path else "?"}cursor=2>; rel="next"'
            origin.put(path, json.dumps([first]).encode(), link=link)
            origin.put(link[1 + len(HUB) : link.index(">")], json.dumps(rest).encode())
        web = Http(replace(config, mirrors=((HUB, origin.url),)))
        resources = RECIPE.resources("mine/task-v0", web)
    assert [resource.size for resource in resources] == [9, 77, 77, 77]


def test_a_mirror_without_an_api_is_asked_for_the_form() -> None:
    document = {"data_format": "arrow", "total_episodes": 2}
    pages = Pages({f"{RESOLVE}main/task-v0/data/metadata.json": document})
    names = [resource.filename for resource in RECIPE.resources("mine/task-v0", pages)]
    assert names == ["metadata.json", "0/part-0.arrow", "1/part-0.arrow"]


@pytest.mark.parametrize(("form", "episodes"), [("zarr", 3), ("arrow", None)])
def test_metadata_of_another_form_is_refused_before_the_download(form: str, episodes: Any) -> None:
    with pytest.raises(SourceError) as caught:
        RECIPE.resources("mine/task-v0", Pages(published(form, episodes)))
    assert caught.value.expected == ["arrow", "parquet"]
