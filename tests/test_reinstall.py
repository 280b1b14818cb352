"""The command that makes a damaged dataset again, from what is left of its manifest."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from datasets_cli.reinstall import reinstall_advice, reinstall_advice_at
from datasets_cli.store.manifest import Manifest

FILE = {
    "filename": "a/x.hdf5",
    "url": "https://host/a/x.hdf5",
    "sha256": "",
    "checked": "size",
}
PUBLISHED = Manifest(
    id="d4rl/x-v0",
    layout="ted",
    num_transitions=3,
    num_trajectories=1,
    columns=(),
    files={},
    resources=(
        {"filename": "a/x.hdf5", "url": "https://host/a/x.hdf5", "checked": "size", "sha256": ""},
    ),
)
DERIVED = replace(
    PUBLISHED,
    id="derived/y",
    parent={"id": "d4rl/x-v0", "content": "0"},
    function={"name": "my.code.half", "digest": "0"},
    arguments={"num_frames": 3, "chunksize": 2, "per": "transition"},
    seed=7,
)


def read_from(place: str, checked: str) -> Manifest:
    file = {**FILE, "url": f"{place}/a/x.hdf5", "checked": checked}
    return replace(PUBLISHED, resources=(file,))


@pytest.mark.parametrize(
    ("manifest", "advice"),
    [
        (PUBLISHED, "Install it again: rlds download --force d4rl/x-v0"),
        (
            read_from("/my data", "not verified: it differs"),
            "Install it again: rlds download --force d4rl/x-v0 --source '/my data' --no-verify",
        ),
        (
            DERIVED,
            "Make it again: rlds delete derived/y, then rlds preprocess d4rl/x-v0 --fn my.code:half"
            " --out y --num-frames 3 --chunksize 2 --per transition --seed 7",
        ),
        (
            replace(DERIVED, function={"name": "f.<locals>.<lambda>"}),
            "Make it again: rlds delete derived/y, then derive it from d4rl/x-v0 by the function "
            "f.<locals>.<lambda>",
        ),
    ],
    ids=["published", "from a source", "derived", "derived by a lambda"],
)
def test_the_command_is_the_one_that_made_it(manifest: Manifest, advice: str) -> None:
    assert reinstall_advice(manifest) == advice


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (json.dumps(PUBLISHED.to_json()), "rlds download --force d4rl/x-v0"),
        ("{", "rlds delete derived/z, then derive it by the call that made it"),
        ('{"id": 5, "format_version": 2}', "rlds delete derived/z"),
        ('{"id": "/?app", "name": "a web page"}', "rlds delete derived/z"),
    ],
)
def test_a_path_leads_to_the_manifest_or_else_tells_the_id(
    content: Any, words: str, tmp_path: Path
) -> None:
    folder = tmp_path / "datasets" / "derived" / "z"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(content)
    assert words in reinstall_advice_at(folder / "next" / "reward.memmap")


def test_a_folder_of_nobody_has_no_id(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"name": "a web page"}')
    assert "copy it again" in reinstall_advice_at(tmp_path / "dump" / "x.memmap")
