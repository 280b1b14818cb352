"""One damaged dataset is one line in every list, and can be asked about, deleted and replaced."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from datasets_cli import api
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import DamagedDataset, IntegrityError
from datasets_cli.store.cache_root import CacheRoot
from tests.support.paths import TEST_DATA

Capture = pytest.CaptureFixture[str]
OLD = TEST_DATA / "formats" / "0.1" / "root" / "datasets" / "toy"


def text(content: str) -> Callable[[Path], Any]:
    return lambda path: path.write_text(content)


APPLES: dict[str, Callable[[Path], Any]] = {
    "no JSON": text("{"),
    "empty": text(""),
    "another JSON": text("[1, 2]"),
    "no field": text('{"format_version": 2}'),
    "fields of other types": text('{"format_version": 1, "columns": 7, "id": null}'),
    "a newer version": text('{"format_version": 99}'),
    "deep": text("[" * 10_000),
    "bytes": lambda path: path.write_bytes(bytes(range(256))),
    "a folder": lambda path: path.mkdir(),
    "a named pipe": os.mkfifo,
    "a link": lambda path: path.symlink_to("/dev/zero"),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
}


@pytest.fixture(params=APPLES)
def apple(request: pytest.FixtureRequest, door: str, config: Config) -> str:
    """Return the id of a dataset whose manifest is damaged; another one without damage is there."""
    sound = CacheRoot(config.root).dataset("toy/vectors")
    shutil.copytree(OLD / "vectors", sound)
    path = CacheRoot(config.root).dataset(door) / "manifest.json"
    path.unlink()
    APPLES[request.param](path)
    return door


def run(capsys: Capture, *arguments: str, code: int = 0) -> tuple[str, str]:
    assert main(list(arguments)) == code, capsys.readouterr()
    captured = capsys.readouterr()
    assert "Unexpected" not in captured.out + captured.err
    return captured.out, captured.err


def test_list_and_info_have_one_line(apple: str, capsys: Capture) -> None:
    lines = run(capsys, "list", "--installed")[0].splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [
        [apple, "damaged"],
        ["toy/vectors", "unchecked"],
    ]
    assert "damaged: " in lines[1]
    records = json.loads(run(capsys, "list", "--installed", "--json")[0])
    assert [(record["state"], record["installed"]) for record in records] == [
        ("damaged", False),
        ("unchecked", True),
    ]
    assert records[0]["problem"] and "problem" not in records[1]
    shown = run(capsys, "info", apple)[0]
    assert sum(line.startswith("damaged ") for line in shown.splitlines()) == 1
    assert f"rlds download --force {apple}" in shown
    assert json.loads(run(capsys, "info", apple, "--json")[0])["state"] == "damaged"


def test_verify_names_it_and_verifies_the_others(apple: str, capsys: Capture) -> None:
    for options in ([], ["--quick"], ["--deep"]):
        out, err = run(capsys, "verify", *options, code=4)
        assert out.startswith(f"{apple}: damaged: ")
        assert "toy/vectors: 20 files as in the manifest" in out and apple in err
    with pytest.raises(IntegrityError) as caught:
        api.verify()
    assert [result.ok for result in caught.value.results] == [False, True]


def test_path_says_where_it_is_and_that_it_is_damaged(apple: str, capsys: Capture) -> None:
    out, err = run(capsys, "path", apple)
    assert Path(out.strip()).name == "door-human-v0" and f"{apple} is damaged: " in err
    assert json.loads(run(capsys, "path", apple, "--json")[0])["state"] == "damaged"


def test_what_needs_its_rows_refuses_it(apple: str, capsys: Capture) -> None:
    run(capsys, "convert", apple, "--layout", "compact", code=4)
    run(capsys, "download", apple, code=4)
    run(capsys, "preprocess", apple, "--fn", "os:getcwd", "--out", "x", code=4)
    with pytest.raises(DamagedDataset):
        api.open_dataset(apple)


def test_it_can_be_deleted(apple: str, config: Config, capsys: Capture) -> None:
    assert "would delete" in run(capsys, "delete", apple, "--dry-run")[0]
    (gone,) = json.loads(run(capsys, "delete", apple, "--yes", "--json")[0])
    assert gone["state"] == "damaged"
    assert list(CacheRoot(config.root).installed()) == ["toy/vectors"]
    assert not list((config.root / "tmp").iterdir())


def test_it_can_be_replaced(apple: str, config: Config, door_source: str, capsys: Capture) -> None:
    source = ["--source", door_source, "--no-verify"]
    run(capsys, "download", "--force", apple, *source)
    assert api.dataset_info(apple, config=config).state == "unverified"
    run(capsys, "verify")
    assert not list((config.root / "tmp").iterdir())


def test_a_manifest_of_another_id_is_not_converted_over_it(
    door: str, config: Config, capsys: Capture
) -> None:
    root = CacheRoot(config.root)
    shutil.copytree(OLD / "vectors", root.dataset("toy/copy"))
    err = run(capsys, "convert", "toy/copy", "--layout", "compact", code=4)[1]
    assert "its manifest is that of 'toy/vectors'" in err


def test_a_folder_whose_name_no_id_can_have_hides_no_other(
    door: str, config: Config, capsys: Capture, caplog: pytest.LogCaptureFixture
) -> None:
    odd = config.root / "datasets" / "toy" / "two words"
    shutil.copytree(OLD / "vectors", odd)
    assert door in run(capsys, "list", "--installed")[0]
    assert "its name cannot be a dataset's" in caplog.text


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
