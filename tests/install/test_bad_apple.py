"""One damaged dataset is one line in every list, and can be asked about, deleted and replaced."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

import datasets_cli
from datasets_cli import ExperienceReplay
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import DamagedDataset, IntegrityError
from datasets_cli.install.layout import extra_files
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.dataset import open_dataset
from datasets_cli.store.manifest import Manifest, read_manifest, write_manifest
from datasets_cli.store.sealed_json import seal
from datasets_cli.store.tables import load_table, save_table
from tests.conftest import DOOR
from tests.support.refusals import refused

Capture = pytest.CaptureFixture[str]


def text(content: str) -> Callable[[Path], Any]:
    return lambda path: path.write_text(content)


APPLES: dict[str, Callable[[Path], Any]] = {
    "no JSON": text("{"),
    "empty": text(""),
    "another JSON": text("[1, 2]"),
    "no field": text('{"format_version": 2}'),
    "fields of other types": text('{"format_version": 2, "columns": 7, "id": null}'),
    "an older version": text('{"format_version": 1}'),
    "a newer version": text('{"format_version": 99}'),
    "deep": text("[" * 10_000),
    "bytes": lambda path: path.write_bytes(bytes(range(256))),
    "a folder": lambda path: path.mkdir(),
    "a named pipe": os.mkfifo,
    "a link": lambda path: path.symlink_to("/dev/zero"),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
}


@pytest.fixture(scope="module")
def toy(root_with_door: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of toy/vectors, whose family has no recipe, to be copied."""
    folder = tmp_path_factory.mktemp("toy") / "vectors"
    shutil.copytree(CacheRoot(root_with_door).dataset(DOOR), folder)
    manifest = read_manifest(folder)
    files = tuple({**file, "checked": "size"} for file in manifest.resources)
    write_manifest(folder, replace(manifest, id="toy/vectors", resources=files, content=""))
    return folder


# What cannot be read in other ways is a damaged manifest to every command as these are.
USUAL = {"no JSON", "an older version", "a newer version", "a folder", "a named pipe"}
USUAL |= {"a link to nothing"}
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in sorted(APPLES.keys() - USUAL)]


@pytest.fixture(params=[*sorted(USUAL), *SLOW])
def apple(request: pytest.FixtureRequest, door: str, toy: Path, config: Config) -> str:
    """Return the id of a dataset whose manifest is damaged; another one without damage is there."""
    shutil.copytree(toy, CacheRoot(config.root).dataset("toy/vectors"))
    path = CacheRoot(config.root).dataset(door) / "manifest.json"
    path.unlink()
    APPLES[request.param](path)
    return door


@pytest.fixture
def state(request: pytest.FixtureRequest, apple: str) -> str:
    """Return the word for what is wrong with it."""
    is_newer = request.node.callspec.params["apple"] == "a newer version"
    return "newer" if is_newer else "damaged"


def run(capsys: Capture, *arguments: str, code: int = 0) -> tuple[str, str]:
    assert main(list(arguments)) == code, capsys.readouterr()
    captured = capsys.readouterr()
    assert "Unexpected" not in captured.out + captured.err
    return captured.out, captured.err


def test_list_and_info_have_one_line(apple: str, state: str, capsys: Capture) -> None:
    lines = run(capsys, "list", "--installed")[0].splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [
        [apple, state],
        ["toy/vectors", "unchecked"],
    ]
    assert f"{state}: " in lines[1]
    records = json.loads(run(capsys, "list", "--installed", "--json")[0])
    assert [(record["state"], record["installed"]) for record in records] == [
        (state, False),
        ("unchecked", True),
    ]
    assert records[0]["problem"] and "problem" not in records[1]
    shown = run(capsys, "info", apple)[0]
    assert sum(line.startswith(f"{state} ") for line in shown.splitlines()) == 1
    advice = {"damaged": f"Run: rlds repair {apple}", "newer": "Upgrade: install"}
    assert advice[state] in shown
    assert json.loads(run(capsys, "info", apple, "--json")[0])["state"] == state


def test_verify_names_it_and_verifies_the_others(apple: str, state: str, capsys: Capture) -> None:
    for options in ([], ["--quick"], ["--deep"]):
        out, err = run(capsys, "verify", *options, code=4)
        assert out.startswith(f"{apple}: {state}: ")
        assert "toy/vectors: 23 files as in the manifest" in out and apple in err
    with pytest.raises(IntegrityError) as caught:
        datasets_cli.verify()
    assert [result.ok for result in caught.value.results] == [False, True]


def test_path_says_where_it_is_and_that_it_is_damaged(
    apple: str, state: str, capsys: Capture
) -> None:
    out, err = run(capsys, "path", apple)
    assert Path(out.strip()).name == "door-human-v0" and f"{apple} is {state}: " in err
    assert json.loads(run(capsys, "path", apple, "--json")[0])["state"] == state


def test_what_needs_its_rows_refuses_it(apple: str, capsys: Capture) -> None:
    run(capsys, "convert", apple, "--layout", "compact", code=4)
    run(capsys, "download", apple, code=4)
    run(capsys, "preprocess", apple, "--fn", "os:getcwd", "--name", "x", code=4)
    with pytest.raises(DamagedDataset):
        datasets_cli.open_dataset(apple)


def test_it_can_be_deleted(apple: str, state: str, config: Config, capsys: Capture) -> None:
    assert "would delete" in run(capsys, "delete", apple, "--dry-run")[0]
    (gone,) = json.loads(run(capsys, "delete", apple, "--yes", "--json")[0])
    assert gone["state"] == state
    assert list(CacheRoot(config.root).installed()) == ["toy/vectors"]
    assert not list((config.root / "tmp").iterdir())


def test_it_can_be_replaced(apple: str, config: Config, door_source: str, capsys: Capture) -> None:
    source = ["--source", door_source, "--no-verify"]
    run(capsys, "download", "--force", apple, *source)
    assert datasets_cli.dataset_info(apple, config=config).state == "unverified"
    run(capsys, "verify")
    assert not list((config.root / "tmp").iterdir())


@pytest.fixture
def stranger(toy: Path, config: Config) -> str:
    """Return the id of a dataset whose manifest is that of another one, which is there too."""
    root = CacheRoot(config.root)
    for id in ("toy/vectors", "toy/copy"):
        shutil.copytree(toy, root.dataset(id))
    return "toy/copy"


OTHER = "toy/copy: its manifest is for 'toy/vectors'"


def test_a_manifest_of_another_id_is_damage_to_every_command(
    stranger: str, capsys: Capture
) -> None:
    lines = run(capsys, "list", "--installed")[0].splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [
        [stranger, "damaged"],
        ["toy/vectors", "unchecked"],
    ]
    assert OTHER in run(capsys, "info", stranger)[0]
    assert OTHER in run(capsys, "path", stranger)[1]
    for options in ([], ["--quick"], ["--deep"]):
        out = run(capsys, "verify", *options, code=4)[0]
        assert f"{stranger}: damaged: {OTHER}" in out
        assert "toy/vectors: 23 files as in the manifest" in out
    for arguments in (
        ["convert", stranger, "--layout", "compact"],
        ["download", stranger],
        ["preprocess", stranger, "--fn", "os:getcwd", "--name", "x"],
        ["preprocess", stranger, "--fn", "os:getcwd", "--name", "x", "--dry-run"],
    ):
        assert OTHER in run(capsys, *arguments, code=4)[1]


def test_a_manifest_of_another_id_is_not_opened(stranger: str) -> None:
    for download in (True, False):
        with refused(DamagedDataset, found="toy/vectors"):
            ExperienceReplay(stranger, batch_size=2, download=download)
    with refused(DamagedDataset, found="toy/vectors"):
        datasets_cli.open_dataset(stranger)
    assert len(datasets_cli.open_dataset("toy/vectors"))


def test_to_delete_a_manifest_of_another_id_leaves_its_tables(
    stranger: str, config: Config, capsys: Capture
) -> None:
    root = CacheRoot(config.root)
    content = read_manifest(root.dataset("toy/vectors")).content
    save_table(root, content, "one", {"n": 1})
    run(capsys, "delete", stranger, "--yes")
    assert load_table(root, content, "one") == {"n": 1}
    run(capsys, "delete", "toy/vectors", "--yes")
    assert load_table(root, content, "one") is None


FUNCTIONS = [{"name": "f"}, {"digest": "0" * 64}, {"name": 1, "digest": "0" * 64}]


@pytest.mark.parametrize("function", [{}, *FUNCTIONS])
def test_a_derived_dataset_names_its_whole_function_or_none(
    function: dict[str, Any], door: str, config: Config, capsys: Capture
) -> None:
    """Every other field that may be absent is."""
    path = CacheRoot(config.root).dataset(door) / "manifest.json"
    document = json.loads(path.read_text())
    has_none = [each for each in fields(Manifest) if each.default is each.default_factory]
    needed = {"format_version", "content", "digest", *(each.name for each in has_none)}
    document = {key: value for key, value in document.items() if key in needed}
    document |= {"parent": {"id": "toy/parent"}, "function": function, "layout": "ted"}
    path.write_bytes(seal(document))
    shown = run(capsys, "info", door)[0]
    assert ("function." if function else "toy/parent, content not stated") in shown
    state = json.loads(run(capsys, "info", door, "--json")[0])["state"]
    assert state == ("damaged" if function else "unchecked")
    run(capsys, "list", "--installed")
    run(capsys, "verify", "--quick", code=4 if function else 0)


EVIL = "\x1b]0;evil\x07\x1b[2J\nrlds: all is well\r\u202e"


def test_what_a_manifest_says_moves_no_cursor(door: str, config: Config, capsys: Capture) -> None:
    folder = CacheRoot(config.root).dataset(door)
    manifest = read_manifest(folder)
    resources = [{**each, "checked": f"not verified: {EVIL}"} for each in manifest.resources]
    metadata = {"notes": [EVIL, "caf\u00e9\u00a0!"], "licence": EVIL, "citation": EVIL}
    changed = replace(manifest, resources=tuple(resources), metadata=metadata)
    for hostile in (changed, replace(manifest, id=EVIL)):
        write_manifest(folder, hostile)
        for arguments in (["info", door], ["list"], ["verify"], ["path", door], ["download", door]):
            main(arguments)
            output = capsys.readouterr()
            for line in (output.out + output.err).split("\n"):
                assert not line.startswith("rlds: all is well")
                assert line.replace("\u00a0", " ").isprintable(), line
    write_manifest(folder, changed)
    out = run(capsys, "info", door)[0]
    assert r"\x1b[2J" in out and "caf\u00e9\u00a0!" in out
    document = json.loads(run(capsys, "info", door, "--json")[0])
    assert document["manifest"]["metadata"]["notes"][0] == EVIL


def test_convert_reads_no_link_that_took_the_place_of_a_file(
    door: str, config: Config, tmp_path: Path
) -> None:
    folder = CacheRoot(config.root).dataset(door)
    manifest = read_manifest(folder)
    (folder / "more.json").write_text("{}")
    entry = {"bytes": 2, "sha256": hashlib.sha256(b"{}").hexdigest()}
    write_manifest(folder, replace(manifest, files={**manifest.files, "more.json": entry}))
    dataset = open_dataset(folder)
    assert extra_files(dataset) == {"more.json": b"{}"}
    (folder / "more.json").unlink()
    (folder / "more.json").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_text("{}")
    with refused(DamagedDataset, path=folder / "more.json"):
        extra_files(dataset)


def test_a_folder_whose_name_no_id_can_have_hides_no_other(
    door: str, toy: Path, config: Config, capsys: Capture, caplog: pytest.LogCaptureFixture
) -> None:
    odd = config.root / "datasets" / "toy" / "two words"
    shutil.copytree(toy, odd)
    assert door in run(capsys, "list", "--installed")[0]
    assert "its name is not a dataset id" in caplog.text


def test_a_folder_that_cannot_be_read_hides_no_other(
    door: str,
    config: Config,
    capsys: Capture,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (config.root / "datasets" / "toy").mkdir()
    listed = Path.iterdir

    def refuse(path: Path) -> Any:
        if path.name == "toy":
            raise PermissionError(13, "Permission denied")
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", refuse)
    assert door in run(capsys, "list", "--installed")[0]
    assert "cannot be read (Permission denied)" in caplog.text
