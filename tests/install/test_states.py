"""How far the files of a dataset are known to be the publisher's, and where that is said."""

from __future__ import annotations

import copy
import importlib
import json
import pickle
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import datasets_cli
from datasets_cli import ExperienceReplay, open_storage
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.core.progress import silent
from datasets_cli.errors import UnverifiedDataset
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.manifest import read_manifest, write_manifest
from datasets_cli.store.sealed_json import seal
from tests.conftest import DEMO, DOOR
from tests.support.interpreters import preloaded

Capture = pytest.CaptureFixture[str]


def printed(capsys: Capture, *arguments: str) -> Any:
    capsys.readouterr()
    assert main([*arguments, "--json"]) == 0, capsys.readouterr()
    found = json.loads(capsys.readouterr().out)
    return found[0] if isinstance(found, list) else found


def check(config: Config, id: str, checked: str) -> None:
    """Have a manifest say how its files were checked."""
    folder = CacheRoot(config.root).dataset(id)
    manifest = read_manifest(folder)
    resources = tuple({**each, "checked": checked} for each in manifest.resources)
    write_manifest(folder, replace(manifest, resources=resources))


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "state_functions.py").write_text("def same(batch):\n    return batch\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return "state_functions"


STATES = {
    "md5": "installed",
    "size": "unchecked",
    "not verified: it differs": "unverified",
}


@pytest.mark.parametrize("checked", STATES)
def test_every_json_has_the_state_and_what_is_made_of_it_inherits_it(
    checked: str, door: str, config: Config, module: str, capsys: Capture
) -> None:
    check(config, door, checked)
    out = ["--fn", f"{module}:same", "--name", "same", "--workers", "0"]
    found = {
        "download": printed(capsys, "download", door)["datasets"][0],
        "path": printed(capsys, "path", door),
        "list": printed(capsys, "list", door),
        "info": printed(capsys, "info", door),
        "verify": printed(capsys, "verify", door),
        "quick": printed(capsys, "verify", door, "--quick"),
        "convert": printed(capsys, "convert", door, "--layout", "compact"),
        "converted": printed(capsys, "list", door),
        "preprocess": printed(capsys, "preprocess", door, *out),
        "derived": printed(capsys, "info", "derived/same"),
        "deleted derived": printed(capsys, "delete", "derived/same", "--yes"),
        "deleted": printed(capsys, "delete", door, "--yes"),
    }
    assert {name: each["state"] for name, each in found.items()} == dict.fromkeys(
        found, STATES[checked]
    )


def test_what_a_publisher_states_decides_the_state_which_is_said_once(
    config: Config, capsys: Capture
) -> None:
    source = str(DEMO / "minari" / "D4RL" / "door" / "human-v2" / "data")
    (dataset,) = datasets_cli.download("minari/my/door-v0", source=source).datasets
    assert (dataset.state, dataset.unverified) == ("unchecked", ())
    told = capsys.readouterr().err
    assert told.count("unchecked: metadata.json, main_data.hdf5: nothing was compared") == 1
    assert "with a source no publisher is asked" in told


def test_what_a_newer_version_wrote_is_not_called_damaged(
    door: str, config: Config, capsys: Capture
) -> None:
    path = CacheRoot(config.root).dataset(door) / "manifest.json"
    path.write_bytes(seal(json.loads(path.read_bytes()) | {"format_version": 9}))
    found = printed(capsys, "list", door)
    assert (found["state"], found["installed"]) == ("newer", False)
    assert "Upgrade: install" in found["problem"]
    assert printed(capsys, "info", door)["state"] == "newer"
    assert main(["verify", door]) == 4
    output = capsys.readouterr()
    assert f"{door}: newer: " in output.out and f"Of a newer version: {door}." in output.err


# The warning


@pytest.fixture
def shown() -> Iterator[list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        yield found


def test_each_opening_warns_once_at_its_line(
    door: str, shown: list[warnings.WarningMessage]
) -> None:
    for _ in range(2):
        ExperienceReplay(door, batch_size=4).sample()
    storage = datasets_cli.open_dataset(door)
    open_storage(storage.dataset.folder)
    assert [found.category for found in shown] == [UnverifiedDataset] * 4
    assert {found.filename for found in shown} == {__file__}
    assert len({found.lineno for found in shown}) == 3
    assert f"{door} is unverified: " in str(shown[0].message)
    assert f"rlds download --force {door}" in str(shown[0].message)


def test_copies_of_what_was_opened_do_not_warn_again(
    door: str, shown: list[warnings.WarningMessage]
) -> None:
    storage = datasets_cli.open_dataset(door)
    pickle.loads(pickle.dumps(storage))
    copy.deepcopy(storage)
    assert len(shown) == 1


@pytest.mark.parametrize("workers", [0, 1])
def test_preprocessing_warns_of_what_comes_of_it_and_no_worker_does(
    door: str, module: str, shown: list[warnings.WarningMessage], workers: int
) -> None:
    same = importlib.import_module(module).same
    datasets_cli.preprocess(door, same, "same", num_workers=workers, progress=silent)
    (found,) = shown
    assert "derived/same is unverified" in str(found.message)
    assert f"it is derived from {door}, whose raw files may differ" in str(found.message)
    assert found.filename == __file__


@pytest.mark.parametrize("checked", ["sha256", "size", "nothing"])
def test_other_states_do_not_warn(
    door: str, config: Config, checked: str, shown: list[warnings.WarningMessage]
) -> None:
    check(config, door, checked)
    ExperienceReplay(door)
    assert not shown


def test_a_filter_of_the_users_wins(door: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnverifiedDataset)
        with pytest.raises(UnverifiedDataset):
            datasets_cli.open_dataset(door)
        warnings.simplefilter("ignore", UnverifiedDataset)
        datasets_cli.open_dataset(door)


def test_a_script_is_told_on_its_own_line(door: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"import datasets_cli\n\ndatasets_cli.open_dataset({door!r})\n")
    done = preloaded(str(script))
    assert done.returncode == 0
    assert f"{script}:3: UnverifiedDataset: {door} is unverified" in done.stderr


def test_the_command_line_has_one_note(door: str, module: str, tmp_path: Path) -> None:
    arguments = ["--fn", f"{module}:same", "--name", "same", "--workers", "0"]
    done = preloaded("-m", "datasets_cli", "preprocess", door, *arguments, folder=tmp_path)
    assert done.returncode == 0
    notes = [line for line in done.stderr.splitlines() if "unverified" in line]
    assert len(notes) == 1 and notes[0].startswith("derived/same is unverified: ")
    assert "simplefilter" not in notes[0] and ".py" not in notes[0]


def test_a_warning_that_the_user_makes_an_error_is_ours_on_the_command_line(
    door: str, module: str, capsys: Capture
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnverifiedDataset)
        code = main(["preprocess", door, "--fn", f"{module}:same", "--name", "o", "--workers", "0"])
    assert code == 1
    assert "rlds: derived/o is unverified" in capsys.readouterr().err


def test_convert_and_info_say_why(door: str, capsys: Capture) -> None:
    assert main(["convert", DOOR, "--layout", "compact"]) == 0
    assert f"{DOOR} is unverified: not verified: " in capsys.readouterr().err
    assert main(["info", DOOR]) == 0
    shown = capsys.readouterr().out
    assert "NOT VERIFIED" in shown
    assert f"rlds convert --layout ted {DOOR}" in shown


def test_the_help_of_list_has_the_words(capsys: Capture) -> None:
    assert main(["list", "--help"]) == 0
    shown = capsys.readouterr().out
    for word in ("installed", "unchecked", "unverified", "newer", "damaged"):
        assert word in shown
