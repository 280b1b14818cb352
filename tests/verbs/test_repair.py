"""Repairing damaged datasets: the same values come back, and nothing sound is touched."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from io import BufferedReader
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

import datasets_cli
from datasets_cli.cli.main import main
from datasets_cli.config import Config, load_config
from datasets_cli.core.progress import silent
from datasets_cli.core.system_errors import MANIFEST_FILENAME
from datasets_cli.errors import DamagedDataset, DatasetNotInstalled, IntegrityError, PartialFailure
from datasets_cli.formats.limits import LIMITS
from datasets_cli.install.installation import install_dataset
from datasets_cli.sources.regular_file import open_regular
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.check import check_digests
from datasets_cli.store.commit import commit
from datasets_cli.store.manifest import Manifest, read_manifest
from datasets_cli.store.sealed_json import seal
from datasets_cli.verbs.verify import verify_installed as verify
from tests.support.d4rl_files import save, steps
from tests.support.origin import Fault, Origin
from tests.support.refusals import refused

MAZE = "d4rl/maze2d-open-v0"
FILENAME = "maze2d-open-sparse.hdf5"
REMOTE = f"datasets/offline_rl/maze2d/{FILENAME}"


@pytest.fixture
def origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Origin]:
    """A server that the publisher's addresses lead to, with one file."""
    path = tmp_path / FILENAME
    save(path, steps(path, (4, 2), [], [99, 199]), compression=None)
    with Origin() as origin:
        origin.put(REMOTE, path.read_bytes())
        servers = ("http://rail.eecs.berkeley.edu/", "https://huggingface.co/")
        mirrors = ",".join(f"{server}={origin.url}" for server in servers)
        monkeypatch.setenv("RLDS_MIRRORS", mirrors)
        yield origin


@pytest.fixture
def maze(origin: Origin) -> Config:
    config = load_config()
    datasets_cli.download(MAZE, config=config)
    return config


def folder(config: Config, id: str = MAZE) -> Path:
    return CacheRoot(config.root).dataset(id)


def flip(config: Config, id: str = MAZE) -> None:
    files = (path for path in folder(config, id).rglob("*") if path.name != MANIFEST_FILENAME)
    path = max((path for path in files if path.is_file()), key=lambda path: path.stat().st_size)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)


def times(config: Config, id: str = MAZE) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder(config, id).rglob("*")}


def test_a_damaged_dataset_comes_back_with_every_byte(maze: Config, origin: Origin) -> None:
    before = read_manifest(folder(maze))
    flip(maze)
    [found] = datasets_cli.repair(config=maze)
    assert (found.outcome, found.same_content) == ("repaired", True)
    assert "sha256" in found.damage and len(origin.ranges(REMOTE)) == 2
    assert verify(MAZE, maze).files == before.files
    assert datasets_cli.prune(config=maze, dry_run=True) == []


def test_only_what_is_bad_among_several_is_made_again(
    maze: Config, origin: Origin, door: str, door_source: str
) -> None:
    flip(maze, door)
    before = times(maze)
    found = {each.id: each.outcome for each in datasets_cli.repair(config=maze)}
    assert found == {MAZE: "sound", door: "repaired"} and times(maze) == before
    assert len(origin.ranges(REMOTE)) == 1
    assert verify(door, maze).unverified != []


def test_raw_files_that_are_still_there_are_not_fetched_again(
    origin: Origin, config: Config
) -> None:
    config = load_config()
    datasets_cli.download(MAZE, keep_raw=True, config=config)
    flip(config)
    assert datasets_cli.repair(config=config)[0].outcome == "repaired"
    assert origin.ranges(REMOTE) == [None]


def test_it_comes_back_in_the_layout_that_it_had(maze: Config) -> None:
    datasets_cli.convert(MAZE, "compact", config=maze)
    flip(maze)
    [found] = datasets_cli.repair("maze2d-open-v0", config=maze)  # a name without its family
    assert (found.id, found.same_content) == (MAZE, True)
    assert verify(MAZE, maze).layout == "compact"


def test_without_its_manifest_it_is_installed_as_its_id_says(maze: Config) -> None:
    content = read_manifest(folder(maze)).content
    (folder(maze) / MANIFEST_FILENAME).write_text("{}")
    [found] = datasets_cli.repair(config=maze)
    assert (found.outcome, found.same_content) == ("repaired", None)
    assert verify(MAZE, maze).content == content


def test_a_file_that_the_disk_cannot_read_is_damage_and_the_others_are_verified(
    maze: Config, origin: Origin, door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(path: Path) -> BufferedReader:
        if path == folder(maze) / "action.memmap":
            raise OSError(errno.EIO, "Input/output error", str(path))
        return open_regular(path)

    flip(maze)
    monkeypatch.setattr("datasets_cli.store.check.open_regular", read)
    with pytest.raises(IntegrityError) as caught:
        datasets_cli.verify([MAZE, door], config=maze)
    bad, good = caught.value.results
    assert "action.memmap: cannot be read (Input/output error)" in str(bad.error)
    assert "observation.memmap: expected sha256" in str(bad.error)  # one after it
    assert good.error is None
    assert [each.outcome for each in datasets_cli.repair(config=maze)] == ["sound", "repaired"]


def test_one_that_cannot_be_written_does_not_keep_the_others_from_coming_back(
    maze: Config, door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(root: CacheRoot, staging: Path, manifest: Manifest, **options: object) -> bool:
        if manifest.id == door:
            raise PermissionError(errno.EACCES, "Permission denied", str(staging))
        return commit(root, staging, manifest)

    monkeypatch.setattr("datasets_cli.install.installation.commit", refuse)
    flip(maze, door)
    flip(maze)
    with pytest.raises(PartialFailure) as caught:
        datasets_cli.repair(config=maze)
    assert {each.id: each.outcome for each in caught.value.results} == {
        door: "failed",
        MAZE: "repaired",
    }
    assert "Permission denied" in str(caught.value.results[0].error)
    assert "permissions" in caught.value.results[0].error.advice


def test_a_dataset_that_another_process_converts_meanwhile_is_not_damaged(
    maze: Config, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    def convert_first(folder: Path, manifest: Manifest) -> None:
        monkeypatch.undo()
        datasets_cli.convert(MAZE, "compact", config=maze)
        check_digests(folder, manifest)

    monkeypatch.setattr("datasets_cli.verbs.verify.check_digests", convert_first)
    assert [each.outcome for each in datasets_cli.repair(config=maze)] == ["sound"]


def test_two_repairs_at_once_install_it_once(
    maze: Config, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = Barrier(2)

    def make(*arguments: Any, **options: Any) -> Path:
        both.wait(60)  # each has found the damage
        return install_dataset(*arguments, **options)

    monkeypatch.setattr("datasets_cli.verbs.repair.install_dataset", make)
    flip(maze)
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(datasets_cli.repair, config=maze, progress=silent) for _ in range(2)]
        found = [each for run in runs for each in run.result()]
    assert [(each.outcome, each.same_content) for each in found] == [("repaired", True)] * 2
    assert len(origin.ranges(REMOTE)) == 2  # the first time, and once more


def test_what_another_process_made_is_installed_again_where_it_is_damaged_too(
    maze: Config, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(*arguments: Any, **options: Any) -> Path:
        datasets_cli.download(MAZE, force=True, config=maze)
        flip(maze)
        return install_dataset(*arguments, **options)

    monkeypatch.setattr("datasets_cli.verbs.repair.install_dataset", make)
    flip(maze)
    assert datasets_cli.repair(config=maze)[0].outcome == "repaired"
    assert verify(MAZE, maze) and len(origin.ranges(REMOTE)) == 3


def test_a_dataset_that_another_process_deletes_meanwhile_is_named(
    maze: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    def delete_first(folder: Path, manifest: Manifest) -> None:
        datasets_cli.delete(MAZE, config=maze)
        check_digests(folder, manifest)

    monkeypatch.setattr("datasets_cli.verbs.verify.check_digests", delete_first)
    with pytest.raises(PartialFailure) as caught:
        datasets_cli.repair(config=maze)
    assert isinstance(caught.value.results[0].error, DatasetNotInstalled)


def test_a_file_beyond_a_limit_is_repaired_with_the_option_that_the_message_names(
    maze: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(maze)
    assert main(["repair", "--limit", "rows=9"]) == 9
    assert "raise the limit: --limit rows=" in " ".join(capsys.readouterr().out.split())
    assert main(["repair", "--limit", "rows=1000"]) == 0
    assert main(["repair", "--limit", "row=200"]) == 2


def test_frames_beyond_the_usual_limit_are_sound_where_the_limit_is_raised(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets_cli.download("demo/pong", config=config, progress=silent)
    monkeypatch.setitem(LIMITS, "row_bytes", replace(LIMITS["row_bytes"], value=100))
    with pytest.raises(PartialFailure, match="demo/pong is still damaged"):
        datasets_cli.repair(config=config, dry_run=True)
    assert main(["repair", "--dry-run", "--limit", "row_bytes=100000"]) == 0


def test_where_nothing_can_be_fetched_the_damaged_copy_stays(maze: Config, origin: Origin) -> None:
    flip(maze)
    origin.always(REMOTE, Fault(status=404))
    before = times(maze)
    with pytest.raises(PartialFailure, match=f"^{MAZE} is still damaged\\.$"):
        datasets_cli.repair(config=maze)
    assert times(maze) == before


def test_derived_data_are_not_guessed(config: Config, door: str) -> None:
    datasets_cli.preprocess(door, lambda rows: rows, "same", config=config)
    flip(config, "derived/same")
    with pytest.raises(PartialFailure) as caught:
        datasets_cli.repair(config=config)
    failed = [each for each in caught.value.results if each.outcome == "failed"]
    assert [each.id for each in failed] == ["derived/same"]
    how = (
        f"Recreate it: rlds delete derived/same, then derive it from {door} with the function "
        "tests.verbs.test_repair.test_derived_data_are_not_guessed.<locals>.<lambda>."
    )
    assert str(failed[0].error).endswith(how) and "rlds repair" not in failed[0].damage


def test_recorded_data_are_not_looked_for_at_a_publisher(config: Config, door: str) -> None:
    shutil.copytree(folder(config, door), folder(config, "recorded/mine"))
    with pytest.raises(PartialFailure) as caught:
        datasets_cli.repair("recorded/mine", config=config)
    [result] = caught.value.results
    assert str(result.error).endswith(
        f"recorded/mine: its manifest is for '{door}'. Record it again with rlds record, into "
        "another --name until this one is deleted."
    )


def test_a_folder_of_another_format_version_is_installed_again(maze: Config) -> None:
    path = folder(maze) / MANIFEST_FILENAME
    manifest = read_manifest(folder(maze))
    path.write_bytes(seal({**json.loads(path.read_bytes()), "format_version": 1}))
    with refused(DamagedDataset, found=1):
        datasets_cli.open_dataset(MAZE, root=maze.root)
    [found] = datasets_cli.repair(config=maze)
    assert found.outcome == "repaired" and verify(MAZE, maze).files == manifest.files


def test_derived_data_without_a_manifest_are_not_looked_for_at_a_publisher(
    config: Config, door: str, capsys: pytest.CaptureFixture[str]
) -> None:
    datasets_cli.preprocess(door, lambda rows: rows, "same", config=config)
    (folder(config, "derived/same") / MANIFEST_FILENAME).write_text("{}")
    assert main(["repair", "derived/same"]) == 9
    shown = capsys.readouterr().out
    assert shown.startswith("derived/same: damaged\n") and shown.count("rlds delete") == 1
    assert "recipe" not in shown


def test_a_copy_that_was_being_replaced_comes_back_first(maze: Config, origin: Origin) -> None:
    trash = CacheRoot(maze.root).new_trash(MAZE)
    trash.parent.mkdir(exist_ok=True)
    shutil.copytree(folder(maze), trash)
    shutil.rmtree(folder(maze))
    assert datasets_cli.repair(MAZE, config=maze)[0].outcome == "sound"
    assert origin.ranges(REMOTE) == [None] and not trash.exists()


def test_the_command_tells_what_was_wrong_and_changes_nothing_in_a_dry_run(
    maze: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(maze)
    before = times(maze)
    assert main(["repair", "--dry-run", "--json"]) == 9
    [document] = json.loads(capsys.readouterr().out)
    assert document["outcome"] == "failed" and "sha256" in document["damage"]
    assert times(maze) == before
    assert main(["repair"]) == 0
    shown = capsys.readouterr().out
    assert "it was damaged: " in shown and "Run: " not in shown
    flip(maze)
    assert main(["repair", "-q"]) == 0
    assert capsys.readouterr().out == f"{MAZE}\n"
