"""Finding raw files that other programs fetched: what is found can be installed as it says."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tensordict import TensorDict

import datasets_cli
from datasets_cli import LazyTensorStorage, ReplayBuffer
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.core.system_errors import MANIFEST_FILENAME
from datasets_cli.errors import UsageError
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.verbs.verify import verify_installed as verify
from tests.support.minari_files import unpack_door
from tests.support.refusals import refused

MINARI = "minari/D4RL/door/human-v2"


@pytest.fixture(autouse=True)
def no_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_the_cache_of_minari_is_found_and_its_command_installs(
    config: Config, tmp_path: Path
) -> None:
    folder = unpack_door(tmp_path / "minari")  # where MINARI_DATASETS_PATH leads
    [found] = datasets_cli.scan(config=config)
    assert (found.id, found.path, found.installed) == (MINARI, folder, False)
    assert found.size_bytes == sum(path.stat().st_size for path in folder.iterdir())
    assert main(shlex.split(found.command)[1:]) == 0
    assert verify(MINARI, config).id == MINARI
    [again] = datasets_cli.scan(config=config)
    assert again.installed and again.command == ""


def test_a_dataset_that_only_this_user_has_is_named_by_its_folder(
    config: Config, tmp_path: Path
) -> None:
    folder = unpack_door(tmp_path / "elsewhere").rename(tmp_path / "data")
    own = tmp_path / "minari" / "mine" / "walk-v0"
    own.mkdir(parents=True)
    folder.rename(own / "data")
    [found] = datasets_cli.scan(config=config)
    assert found.id == "minari/mine/walk-v0" and "--source" in found.command


def sized(path: Path, size: int) -> None:
    """Make a file of some size that takes no space."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)


def test_the_files_of_d4rl_are_known_by_name_and_size(config: Config, tmp_path: Path) -> None:
    cache = tmp_path / "home" / ".d4rl" / "datasets"
    sized(cache / "ant_expert.hdf5", 137_721_019)  # as the publisher states it
    sized(cache / "ant_expert-v1.hdf5", 231_441_892 - 1)
    sized(cache / "maze2d-open-sparse.hdf5", 5)  # no size is published
    data = datasets_cli.scan(config=config)
    found = {each.id: each.path for each in data if each.command}
    assert found == {"d4rl/ant-expert-v0": cache, "d4rl/maze2d-open-v0": cache}
    [other] = [each for each in data if not each.command]
    assert (other.id, other.path) == ("d4rl/ant-expert-v1", cache / "ant_expert-v1.hdf5")
    assert other.size_bytes == 231_441_892 - 1 and "231,441,892" in other.reason


def test_the_logs_of_an_atari_run_are_known_by_their_folder(config: Config, tmp_path: Path) -> None:
    logs = tmp_path / "atari" / "Pong" / "5" / "replay_logs"
    whole = [*range(50)]
    for number in whole[:-1]:
        for name in ("observation", "action", "reward", "terminal"):
            sized(logs / f"$store$_{name}_ckpt.{number}.gz", 10)
    assert datasets_cli.scan(tmp_path / "atari", config=config) == []  # one log is missing
    for name in ("observation", "action", "reward", "terminal"):
        sized(logs / f"$store$_{name}_ckpt.49.gz", 10)
    for number in whole:
        for name in ("add_count", "invalid_range"):
            sized(logs / f"{name}_ckpt.{number}.gz", 10)
    assert [each.id for each in datasets_cli.scan(tmp_path / "atari", config=config)] == [
        "atari_dqn/Pong/5"
    ]


def test_what_torchrl_converted_is_named_and_never_offered(config: Config, tmp_path: Path) -> None:
    cache = tmp_path / "home" / ".cache" / "torchrl" / "minari" / "door-human-v1"
    sized(cache / "meta.json", 20)
    sized(cache / "reward.memmap", 80)
    sized(cache / "next" / "reward.memmap", 80)
    [found] = datasets_cli.scan(config=config)
    assert (found.kind, found.path, found.size_bytes) == ("converted by TorchRL", cache, 180)
    assert found.command == "" and "download the dataset" in found.reason


@pytest.mark.parametrize("id", ["demo/iris", "demo/pong"], ids=["ted", "compact"])
def test_the_folder_of_a_dataset_is_found_and_its_command_copies_it_into_place(
    id: str, config: Config, tmp_path: Path
) -> None:
    datasets_cli.download(id, config=config)
    copy = CacheRoot(config.root).dataset(id).rename(tmp_path / "a copy")
    [found] = [each for each in datasets_cli.scan(tmp_path, config=config) if each.id]
    assert (found.kind, found.id, found.path) == ("a dataset", id, copy)
    copying, _, verifying = found.command.rpartition(" && ")
    subprocess.run(["sh", "-c", copying], check=True)
    assert main([*shlex.split(verifying)[1:], "--root", str(config.root)]) == 0
    [again] = [each for each in datasets_cli.scan(tmp_path, config=config) if each.id]
    assert again.installed and again.command == ""


def test_a_folder_with_a_damaged_manifest_is_named(config: Config, tmp_path: Path) -> None:
    sized(tmp_path / "data" / MANIFEST_FILENAME, 9)
    [found] = datasets_cli.scan(tmp_path / "data", config=config)
    assert (found.kind, found.command) == ("a dataset", "") and found.reason


def test_dumps_are_not_taken_for_torchrls(config: Config, tmp_path: Path) -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(3))
    buffer.extend(TensorDict({"reward": torch.zeros(3, 1)}, 3))
    buffer.dumps(tmp_path / "data" / "dump")
    assert datasets_cli.scan(tmp_path / "data", config=config) == []


def test_a_folder_of_the_root_without_a_manifest_is_named(config: Config, door: str) -> None:
    folder = CacheRoot(config.root).dataset(door)
    (folder / MANIFEST_FILENAME).unlink()  # it looks like one of TorchRL's
    sized(CacheRoot(config.root).path / "datasets" / "derived" / ".a.0.partial" / "plan.json", 3)
    [found] = datasets_cli.scan(config=config)
    assert (found.kind, found.path) == ("without a manifest", folder)


def test_nothing_is_found_in_an_empty_home(
    config: Config, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert main(["scan"]) == 0
    assert capsys.readouterr() == ("", "Nothing found.\n") and caplog.text == ""
    assert not config.root.exists()


def test_a_folder_that_does_not_exist_is_a_usage_error(config: Config, tmp_path: Path) -> None:
    with refused(UsageError, argument="folders", path=""):
        datasets_cli.scan("", config=config)
    with refused(UsageError, argument="folders"):
        datasets_cli.scan(tmp_path / "nowhere", config=config)


def test_what_the_command_prints_is_json_or_commands(
    config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unpack_door(tmp_path / "minari")
    assert main(["scan", "--json"]) == 0
    [document] = json.loads(capsys.readouterr().out)
    assert (document["id"], document["kind"]) == (MINARI, "raw files")
    assert main(["scan", "-q"]) == 0
    assert capsys.readouterr().out == document["command"] + "\n"


def test_the_command_is_whole_on_a_narrow_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = unpack_door(tmp_path / "minari")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    assert main(["scan"]) == 0
    assert f"  rlds download {MINARI} --source {folder}\n" in capsys.readouterr().out
