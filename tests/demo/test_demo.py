"""``rlds demo --keep``: samples to work with where there is no network, marked as what they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from datasets_cli import ExperienceReplay
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.demo.keep import keep
from datasets_cli.install.install import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.manifest import read_manifest, write_manifest
from tests.conftest import DEMO, DOOR

Capture = pytest.CaptureFixture[str]
PONG = DEMO / "atari_dqn" / "Pong" / "5" / "replay_logs"


def run_json(capsys: Capture, *arguments: str) -> Any:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_what_the_demo_keeps_opens_offline_and_is_marked_everywhere(
    config: Config, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stops = {stop["id"]: stop for stop in run_json(capsys, "demo", "--keep")}
    assert all(stop["kept"] for stop in stops.values())
    monkeypatch.setenv("RLDS_OFFLINE", "1")
    for record in run_json(capsys, "list", "--installed"):
        stop = stops.pop(record["id"])
        assert (record["state"], record["installed"]) == ("unverified", True)
        assert len(ExperienceReplay(record["id"], download=False)) == stop["num_transitions"]
        assert main(["info", record["id"]]) == 0
        assert f"not verified: {stop['about']}" in capsys.readouterr().out
    assert not stops
    assert main(["verify"]) == 0


def test_without_keep_the_demo_leaves_nothing(config: Config) -> None:
    assert main(["demo", "-q"]) == 0
    assert not config.root.exists()


def test_the_demo_says_how_to_use_what_it_keeps(tmp_path: Path, capsys: Capture) -> None:
    root = tmp_path / "elsewhere"
    assert main(["demo", "--keep", "--root", str(root)]) == 0
    output = capsys.readouterr().out
    names: dict[str, Any] = {}
    code = [line.strip() for line in output.splitlines() if "ExperienceReplay" in line]
    exec("\n".join([code[0], f"batch = {code[1]}"]), names)
    assert names["batch"].shape == (256,)
    assert f"rlds info {DOOR} --root {root}" in output
    assert len(output.splitlines()) <= 24  # one screen


@pytest.fixture
def sample(config: Config, door_source: str, tmp_path: Path) -> Path:
    """The folder of a dataset as the demo installs it."""
    elsewhere = Config(tmp_path / "demo")
    return install_dataset(DOOR, elsewhere, InstallOptions(source=door_source, accept_any=True))


def test_an_installed_dataset_is_never_replaced(sample: Path, door: str, config: Config) -> None:
    folder = CacheRoot(config.root).dataset(door)
    before = (folder / "manifest.json").read_bytes()
    assert not keep(sample, "a sample", config)
    assert (folder / "manifest.json").read_bytes() == before


def test_a_copy_that_a_killed_run_put_aside_is_brought_back(
    sample: Path, door: str, config: Config
) -> None:
    root = CacheRoot(config.root)
    trash = root.new_trash(door)
    trash.parent.mkdir(exist_ok=True)
    root.dataset(door).rename(trash)
    assert not keep(sample, "a sample", config)
    assert "a sample" not in read_manifest(root.dataset(door)).unverified[0]


def test_a_dataset_that_stands_in_for_the_id_is_not_hidden(config: Config, tmp_path: Path) -> None:
    demo = install_dataset(
        "atari_dqn/Pong/5",
        Config(tmp_path / "demo"),
        InstallOptions(source=str(PONG), accept_any=True),
    )
    root = CacheRoot(config.root)
    stand_in = root.dataset("atari_dqn/Pong/5~unplugged")
    stand_in.mkdir(parents=True)
    write_manifest(stand_in, read_manifest(demo))
    assert not keep(demo, "a sample", config)
    assert list(root.installed()) == ["atari_dqn/Pong/5~unplugged"]


def test_list_and_info_have_one_word_for_one_state(
    door: str, config: Config, capsys: Capture
) -> None:
    def states() -> tuple[str, str]:
        (record,) = run_json(capsys, "list", door)
        return record["state"], run_json(capsys, "info", door)["state"]

    assert states() == ("unverified", "unverified")
    (CacheRoot(config.root).dataset(door) / "action.memmap").unlink()
    assert states() == ("damaged", "damaged")
    assert main(["delete", door, "--yes", "-q"]) == 0
    capsys.readouterr()
    assert states() == ("not installed", "not installed")
