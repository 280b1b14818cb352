"""One content for one dataset, however it came here; and no file of it is written again."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import pytest

import datasets_cli
from datasets_cli import ExperienceReplay
from datasets_cli.catalogue import entries
from datasets_cli.catalogue.entries import load_recipe
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.core.progress import silent
from datasets_cli.errors import UsageError
from datasets_cli.store import cache_root, content
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.manifest import Manifest, read_manifest
from datasets_cli.store.tables import load_table, remove_tables, save_table
from datasets_cli.verbs.delete import delete
from tests.conftest import DEMO, DOOR
from tests.recipes.test_atari import invented
from tests.support.atari_files import record
from tests.support.origin import Origin

ID = "minari/D4RL/door/human-v2"
FILES = DEMO / ID / "data"
PONG = "atari_dqn/Pong/5"


def install(root: Path, id: str, **arguments: Any) -> Manifest:
    """Install into a new root and return the manifest."""
    config = arguments.pop("config", None) or Config(root)
    found = datasets_cli.download(
        id, config=replace(config, root=root), progress=silent, **arguments
    )
    return read_manifest(found.datasets[0].path)


# Identity


def test_two_mirrors_and_a_moved_folder_have_one_content(tmp_path: Path) -> None:
    found = [install(tmp_path / "a", ID, source=str(FILES))]
    moved = shutil.copytree(FILES, tmp_path / "moved" / "there")
    found.append(install(tmp_path / "b", ID, source=str(moved)))
    for name in ("first", "second"):
        with Origin() as origin:
            for file in FILES.iterdir():
                origin.put(f"{name}/{file.name}", file.read_bytes(), etag=f'"{name}"')
            source = f"{origin.url}{name}"
            found.append(install(tmp_path / name, ID, source=source, layout="compact"))
    assert len({manifest.content for manifest in found}) == 1
    assert len({str(manifest.resources) for manifest in found}) == 4


def test_pages_about_a_table_are_known_by_what_they_say_of_its_values(tmp_path: Path) -> None:
    pages = DEMO / "openml/api/v1/json/data"
    named = {"description.json": pages / "61", "features.json": pages / "features/61"}
    named["dataset.arff"] = DEMO / "openml/data/v1/download/61/iris.arff"
    source = tmp_path / "source"
    source.mkdir()
    for name, path in named.items():
        shutil.copyfile(path, source / name)

    def content_with(page: str, old: str, new: str) -> str:
        text = named[page].read_text()
        assert old in text
        (source / page).write_text(text.replace(old, new, 1))
        root = tmp_path / hashlib.sha256(new.encode()).hexdigest()
        return install(root, "openml/61", source=str(source)).content

    plain = content_with("description.json", '"Public"', '"Public"')
    assert content_with("description.json", '"Public"', '"CC0"') == plain
    (source / "description.json").write_text(named["description.json"].read_text())
    other = content_with("features.json", '"is_ignore": "false"', '"is_ignore": "true"')
    assert other != plain


def test_both_layouts_and_a_converted_one_have_one_content(tmp_path: Path) -> None:
    ted = install(tmp_path / "ted", ID, source=str(FILES), layout="ted")
    packed = install(tmp_path / "compact", ID, source=str(FILES), layout="compact")
    datasets_cli.convert(ID, "ted", config=Config(tmp_path / "compact"), progress=silent)
    converted = read_manifest(CacheRoot(tmp_path / "compact").dataset(ID))
    assert ted.content == packed.content == converted.content == converted.computed_content()
    assert (packed.layout, converted.layout) == ("compact", "ted")


def test_workers_do_not_change_the_content_and_a_part_does(tmp_path: Path) -> None:
    run = record(tmp_path / "run", invented([30, 25, 40, 20]), 40)
    source = str(run.folder)
    whole = [
        install(
            tmp_path / str(n),
            f"{PONG}~ckpt0-{run.num_logs}",
            source=source,
            num_workers=n,
            verify=False,
        )
        for n in (0, 2)
    ]
    part = install(tmp_path / "part", PONG, source=source, options={"checkpoints": "0:1"})
    assert whole[0].content == whole[1].content != part.content
    assert part.id == f"{PONG}~ckpt0-1"


def test_another_version_of_recipe_or_rule_is_another_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = install(tmp_path / "before", ID, source=str(FILES))
    newer = replace(load_recipe("minari"), version=load_recipe("minari").version + 1)
    with monkeypatch.context() as patch:
        patch.setattr("datasets_cli.recipes.minari.RECIPE", newer)
        entries.load_recipe.cache_clear()
        after = install(tmp_path / "after", ID, source=str(FILES))
    entries.load_recipe.cache_clear()
    monkeypatch.setattr("datasets_cli.install.convert.SUCCESSOR_RULE_VERSION", 3)
    ruled = install(tmp_path / "ruled", ID, source=str(FILES))
    assert len({before.content, after.content, ruled.content}) == 3
    assert before.successors["version"] == content.SUCCESSOR_RULE_VERSION == 2


def test_one_source_byte_is_another_content(tmp_path: Path, door_source: str) -> None:
    folder = Path(shutil.copytree(door_source, tmp_path / "source"))
    before = install(tmp_path / "before", DOOR, source=str(folder), verify=False)
    (path,) = folder.iterdir()
    with h5py.File(path, "r+") as file:
        file["observations"][0, 0] += 1
    after = install(tmp_path / "after", DOOR, source=str(folder), verify=False)
    assert before.content != after.content
    assert before.columns == after.columns


def test_a_derived_dataset_is_known_by_parent_function_arguments_and_seed(
    door: str, config: Config
) -> None:
    def derived(function: Any, **arguments: Any) -> str:
        datasets_cli.preprocess(door, function, "it", progress=silent, **arguments)
        manifest = read_manifest(CacheRoot(config.root).dataset("derived/it"))
        delete("derived/it", config=config)
        return manifest.content

    def same(batch: Any) -> Any:
        return batch

    def other(batch: Any) -> Any:
        return batch.clone()

    first = derived(same)
    assert derived(same, num_workers=1) == first
    changes: list[dict[str, Any]] = [{"seed": 1}, {"num_frames": 10}, {"chunksize": 100}]
    others = [derived(same, **change) for change in changes]
    assert len({first, derived(other), *others}) == 5
    datasets_cli.convert(door, "compact", config=config, progress=silent)
    assert derived(same) == first  # the parent's layout is none of its identity


def test_a_derived_dataset_says_what_it_was_made_of(
    door: str, config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    datasets_cli.preprocess(door, lambda batch: batch, "it", seed=7, num_frames=9, progress=silent)
    parent = read_manifest(CacheRoot(config.root).dataset(door))
    manifest = read_manifest(CacheRoot(config.root).dataset("derived/it"))
    known = {"content": parent.content, "state": "unverified", "layout": "ted"}
    assert manifest.parent == {"id": door, **known}
    arguments = {"num_frames": 9, "chunksize": 9, "per": "chunk"}
    assert (manifest.seed, manifest.arguments) == (7, arguments)
    assert main(["info", "derived/it"]) == 0
    shown = capsys.readouterr().out
    for text in (
        f"parent             {door}, content {parent.content[:16]}",
        "<lambda> (chunksize 9, num_frames 9, per chunk, seed 7), digest ",
        f"licence            {parent.recipe['licence']}",
        f"content            {manifest.content[:16]}\n",
    ):
        assert text in shown
    assert datasets_cli.dataset_info("derived/it").to_json()["content"] == manifest.content


# A committed dataset is never written again


def files_of(folder: Path) -> dict[str, tuple[Any, ...]]:
    found = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        stat = path.lstat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        name = path.relative_to(folder).as_posix()
        found[name] = (stat.st_mtime_ns, stat.st_ino, stat.st_size, stat.st_mode, digest)
    return found


@pytest.mark.parametrize("layout", ["ted", "compact"])
def test_nothing_writes_into_a_committed_dataset(
    layout: str, door_source: str, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments: dict[str, Any] = {"source": door_source, "verify": False, "layout": layout}
    install(config.root, DOOR, **arguments)
    folder = CacheRoot(config.root).dataset(DOOR)
    before = files_of(folder)
    install(config.root, DOOR, layout=layout)
    replay = ExperienceReplay(DOOR, batch_size=8, num_slices=2)
    replay.sample()
    replay.qlearning_dataset()
    datasets_cli.preprocess(DOOR, lambda batch: batch, "it", num_workers=1, progress=silent)
    for options in ({}, {"quick": True}, {"deep": True}):
        datasets_cli.verify(config=config, progress=silent, **options)
    datasets_cli.convert(DOOR, layout, config=config)
    datasets_cli.list_datasets()
    datasets_cli.dataset_info(DOOR)
    assert files_of(folder) == before
    monkeypatch.setattr("datasets_cli.install.layout.commit", lambda *_: True)
    datasets_cli.convert(
        DOOR, "compact" if layout == "ted" else "ted", config=config, progress=silent
    )
    assert files_of(folder) == before


# Tables


def test_tables_are_below_the_root_and_made_on_demand(tmp_path: Path) -> None:
    root = CacheRoot(tmp_path / "root")
    assert root.tables("ab") == tmp_path / "root" / "tables" / "ab"
    assert load_table(root, "ab", "one") is None
    assert not (tmp_path / "root").exists()
    save_table(root, "ab", "one", {"n": 1})
    save_table(root, "ab", "one", {"n": 2})
    assert load_table(root, "ab", "one") == {"n": 2}
    assert [path.name for path in root.tables("ab").iterdir()] == ["one.json"]


def test_a_root_that_cannot_be_written_has_its_tables_in_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cache_root.os, "access", lambda path, mode: False)
    root = CacheRoot(tmp_path / "root")
    save_table(root, "ab", "one", {"n": 1})
    assert not (tmp_path / "root").exists()
    assert "tables/ab" in root.tables("ab").as_posix()
    assert root.tables("ab").is_relative_to(cache_root.platformdirs.user_cache_path("rlds"))
    assert load_table(root, "ab", "one") == {"n": 1}


def test_tables_are_found_after_the_root_became_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = CacheRoot(tmp_path / "root")
    save_table(root, "ab", "one", {"n": 1})
    with monkeypatch.context() as context:
        context.setattr(cache_root.os, "access", lambda path, mode: False)
        assert load_table(root, "ab", "one") == {"n": 1}
        save_table(root, "ab", "two", {"n": 2})  # not into the folder that is there
        assert not (root.path / "tables" / "ab" / "two.json").exists()
    assert load_table(root, "ab", "two") == {"n": 2}
    remove_tables(root, "ab")
    assert load_table(root, "ab", "one") is load_table(root, "ab", "two") is None


def test_tables_go_with_the_data_that_they_are_about(
    door: str, door_source: str, config: Config, tmp_path: Path
) -> None:
    root = CacheRoot(config.root)
    before = read_manifest(root.dataset(door))
    save_table(root, before.content, "one", {"n": 1})
    arguments: dict[str, Any] = {"verify": False, "force": True}
    assert install(config.root, door, source=door_source, **arguments).content == before.content
    assert load_table(root, before.content, "one") == {"n": 1}
    folder = Path(shutil.copytree(door_source, tmp_path / "source"))
    (path,) = folder.iterdir()
    with h5py.File(path, "r+") as file:
        file["observations"][0, 0] += 1
    after = install(config.root, door, source=str(folder), **arguments)
    assert load_table(root, before.content, "one") is None
    save_table(root, after.content, "one", {"n": 2})
    delete(door, config=config)
    assert not list((config.root / "tables").iterdir())


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"a": NaN}'])
def test_a_table_that_cannot_be_read_is_absent(
    tmp_path: Path, text: str, door: str, config: Config
) -> None:
    root = CacheRoot(config.root)
    save_table(root, "ab", "one", {"n": 1})
    (root.tables("ab") / "one.json").write_text(text)
    assert load_table(root, "ab", "one") is None


@pytest.mark.parametrize("table", [{}, {"columns": 7}, {"columns": [{"key": 1}]}])
def test_info_leaves_out_a_report_that_is_none(
    table: dict[str, Any], door: str, config: Config
) -> None:
    root = CacheRoot(config.root)
    save_table(root, read_manifest(root.dataset(door)).content, "deep_check", table)
    assert datasets_cli.dataset_info(door).report is None


def test_a_report_that_cannot_be_kept_is_still_shown(
    door: str, config: Config, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("datasets_cli.verbs.verify.save_table", refuse)
    (found,) = datasets_cli.verify(door, deep=True, progress=silent)
    assert found.report is not None
    assert "the report is not cached" in caplog.text


@pytest.mark.parametrize("is_given", [True, False])
def test_a_root_that_an_argument_names_and_is_made_is_said(
    is_given: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = tmp_path / "typo"
    if not is_given:
        monkeypatch.setenv("RLDS_HOME", str(root))
    for _ in range(2):
        ExperienceReplay("demo/iris", root=root if is_given else None, batch_size=2)
    assert capsys.readouterr().err.count(f"{root} does not exist") == is_given


@pytest.mark.parametrize("target", [None, "file", "nowhere", "iris"])
def test_a_file_or_a_link_in_the_place_of_a_dataset_is_refused_and_force_replaces_it(
    target: str | None, config: Config, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    place = CacheRoot(config.root).dataset("demo/iris")
    place.parent.mkdir(parents=True)
    if target is None:
        place.write_text("mine")
    else:
        place.symlink_to(place if target == "iris" else tmp_path / target)
    assert main(["download", "demo/iris"]) == UsageError.exit_code
    assert os.path.lexists(place) and main(["scan"]) == 0
    assert main(["download", "demo/iris", "--force"]) == 0
    assert datasets_cli.verify("demo/iris", config=config)[0].ok
    assert not [*(config.root / "tmp").iterdir()] and (tmp_path / "file").read_text() == "mine"
