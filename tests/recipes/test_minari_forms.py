"""Minari's two forms, HDF5 and Arrow: every value is the one that Minari's own reader gives."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datasets_cli.catalogue.entries import load_recipe
from datasets_cli.config import Config
from datasets_cli.errors import SourceError, UsageError, install_extra
from datasets_cli.sources.http import Http
from datasets_cli.store.dataset import Dataset
from tests.recipes.conftest import Install
from tests.recipes.test_minari import HUB, Pages
from tests.support import minari_files as files
from tests.support.minari_values import by_minari, expected, texts_by_minari
from tests.support.origin import Origin
from tests.support.refusals import refused
from tests.support.values import assert_same, everything

RECIPE = load_recipe("minari")


BUILDERS = [*files.PLAIN, *files.JPEG, *files.TEXTS[1:]]
FORMATS = ["hdf5", "arrow", "parquet"]

HDF5_ALONE = {
    "changed by h5py": [
        files.big_endian,
        files.no_infos,
        files.no_seeds,
        files.odd_names_and_types,
        files.odd_numbers,
    ],
    "infos with a row for each action": [files.changing_texts, files.infos_of_both_lengths],
    "frames as actions": [files.jpeg_of_unequal_length],
}
"""What Minari's writer does not write in the Arrow form."""

EVERY = [
    (build, form)
    for number, build in enumerate(BUILDERS)
    for form in ("hdf5", FORMATS[1 + number % 2])
    if build not in files.UNREADABLE
    if form == "hdf5" or not any(build in builders for builders in HDF5_ALONE.values())
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


@pytest.mark.parametrize(
    "build",
    [build for why, builders in HDF5_ALONE.items() if "h5py" not in why for build in builders],
)
def test_minari_does_not_write_these_in_the_arrow_form(build: Any, form: str) -> None:
    with pytest.raises((pa.ArrowInvalid, ValueError)):
        build()


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


# Refusals


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


# The files at the publisher


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
