"""What a released version promised to programs still holds."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

import datasets_cli
from datasets_cli.store.sealed_json import seal
from tests.support import promises
from tests.support.paths import PROJECT

RELEASED = sorted(promises.FOLDER.glob("*.json"))


@pytest.fixture(params=RELEASED, ids=[path.stem for path in RELEASED])
def released(request: pytest.FixtureRequest) -> Any:
    path: Path = request.param
    return json.loads(path.read_text(encoding="utf-8"))


def test_every_id_of_a_released_version_is_listed(released: Any) -> None:
    assert not {*released["ids"]} - {each.id for each in datasets_cli.list_datasets()}


def test_every_error_of_a_released_version_has_its_exit_code(released: Any) -> None:
    codes = promises.exit_codes()
    assert {name: codes.get(name) for name in released["exit codes"]} == released["exit codes"]


def test_every_public_name_of_a_released_version_is_there(released: Any) -> None:
    names = promises.names()
    gone = {module: {*before} - {*names[module]} for module, before in released["names"].items()}
    assert not {module: some for module, some in gone.items() if some}


def test_json_has_every_key_of_a_released_version(released: Any) -> None:
    keys = promises.json_keys()
    gone = {name: {*before} - {*keys[name]} for name, before in released["json"].items()}
    assert not {name: some for name, some in gone.items() if some}


def test_the_page_of_exit_codes_has_every_code() -> None:
    page = (PROJECT / "docs" / "command-line.md").read_text(encoding="utf-8")
    table = page.partition("\n## Exit codes\n")[2]
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
    assert {*promises.exit_codes().values()} <= listed


def test_the_page_names_the_commands_whose_keys_are_promised() -> None:
    page = (PROJECT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith("| keys of `--json`"))
    named = re.findall(r"`([a-z]+)`", row.partition(" prints ")[0])
    assert {*named} == promises.COMMANDS.keys() - {"error"}


def test_a_dataset_with_a_field_and_a_file_of_a_later_version_is_opened_and_verified(
    door: str,
) -> None:
    folder = datasets_cli.dataset_path(door).path
    path = folder / "manifest.json"
    entry = json.loads(path.read_bytes())
    (folder / "later.bin").write_bytes(b"later")
    digest = hashlib.sha256(b"later").hexdigest()
    entry["files"]["later.bin"] = {"bytes": 5, "sha256": digest}
    path.write_bytes(seal(entry | {"later": {"of": "a newer version"}}))
    assert len(datasets_cli.open_dataset(door)) == 1495
    (verified,) = datasets_cli.verify(door)
    assert verified.ok and verified.num_files == len(entry["files"])
