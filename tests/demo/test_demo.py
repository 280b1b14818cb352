"""Data that ships with the package: ids of its own, and never a published one."""

from __future__ import annotations

import json
import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from datasets_cli import (
    AtariDQNExperienceReplay,
    D4RLExperienceReplay,
    ExperienceReplay,
    MinariExperienceReplay,
    OpenMLExperienceReplay,
    UnverifiedDataset,
    api,
)
from datasets_cli.catalogue.names import resolve
from datasets_cli.catalogue.registry import load_recipe
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import OfflineError, UnknownDataset
from datasets_cli.install.install import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.progress import Silent
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.manifest import read_manifest, write_manifest
from tests.conftest import DOOR
from tests.support.conformance import CASES
from tests.support.demo_pages import PUBLISHERS, pages
from tests.support.origin import Fault, Origin
from tests.support.paths import DEMO_DATA, TEST_DATA
from tests.support.values import assert_folder

Capture = pytest.CaptureFixture[str]
DEMOS = {
    "demo/door-human": D4RLExperienceReplay,
    "demo/door-minari": MinariExperienceReplay,
    "demo/iris": OpenMLExperienceReplay,
    "demo/pong": AtariDQNExperienceReplay,
}
LEFT = ("openml/61", "atari_dqn/Pong/5")
"""What the version-1 root has under published ids, as rlds demo --keep of 0.2 left it."""


def run_json(capsys: Capture, *arguments: str) -> Any:
    capsys.readouterr()
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


# Ids of its own


def test_what_the_demo_keeps_opens_offline_and_has_ids_of_its_own(
    config: Config, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLDS_OFFLINE", "1")
    stops = {stop["id"]: stop for stop in run_json(capsys, "demo", "--keep")}
    assert list(stops) == list(DEMOS) and all(stop["kept"] for stop in stops.values())
    records = run_json(capsys, "list", "--installed")
    assert [record["id"] for record in records] == list(DEMOS)
    for record in records:
        stop = stops[record["id"]]
        assert (record["state"], record["installed"]) == ("installed", True)
        assert len(ExperienceReplay(record["id"], download=False)) == stop["num_transitions"]
        assert main(["info", record["id"]]) == 0
        told = " ".join(capsys.readouterr().out.split())
        assert f"demo data, and not {load_sample(record['id'])}: {stop['about']}" in told
    assert main(["verify"]) == 0
    assert not any(stop["kept"] for stop in run_json(capsys, "demo", "--keep"))


def load_sample(id: str) -> str:
    """Return the published id that a dataset of the demo is a sample of."""
    return str(api.dataset_info(id).to_json()["details"]["sample_of"])


def test_the_demo_shows_no_warning_to_a_new_user(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["demo"]) == 0
    assert capfd.readouterr().err == ""


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
    assert f"rlds info demo/door-human --root {root}" in output
    assert "unverified" not in output
    assert len(output.splitlines()) <= 24  # one screen


@pytest.mark.parametrize("layout", ["ted", "compact"])
@pytest.mark.parametrize(("id", "family"), [*zip(DEMOS, CASES, strict=True)])
def test_each_has_the_values_that_an_independent_reader_finds(
    id: str, family: str, layout: str, config: Config
) -> None:
    offline = Config(config.root, offline=True)
    folder = install_dataset(id, offline, InstallOptions(layout=layout))
    if layout == "compact":
        folder = api.convert(id, "ted", config=offline, progress=Silent()).path
    assert_folder(folder, CASES[family].expected())
    assert load_sample(id) == CASES[family].id


def test_the_catalogue_has_every_file_and_its_numbers(config: Config) -> None:
    recipe, found = load_recipe("demo"), set()
    for entry in recipe.datasets(None):
        files = recipe.resources(entry.name, None)
        found |= {file.filename for file in files}
        manifest = read_manifest(install_dataset(f"demo/{entry.name}", config))
        assert {each["checked"] for each in manifest.resources} == {"sha256"}
        assert (manifest.num_transitions, manifest.num_trajectories) == (
            entry.num_transitions,
            entry.num_trajectories,
        )
        assert entry.size == sum(each["bytes"] for each in manifest.resources)
        assert manifest.metadata["licence"]
    shipped = {path.relative_to(DEMO_DATA).as_posix() for path in DEMO_DATA.rglob("*.*")}
    shipped |= {"openml/api/v1/json/data/61", "openml/api/v1/json/data/features/61"}
    assert found == shipped - {"ORIGIN.md"}


@pytest.mark.parametrize("id", DEMOS)
def test_every_class_opens_them(id: str, config: Config) -> None:
    replay = DEMOS[id](id, batch_size=16)
    assert (replay.dataset_id, len(replay.sample())) == (id, 16)
    assert ExperienceReplay(id, download=False).dataset_id == id


def test_a_name_without_its_family_is_never_the_demo_s(config: Config) -> None:
    root = CacheRoot(config.root)
    assert resolve("door-human", root).id == "d4rl/door-human-v1"
    assert resolve("iris", root).recipe.family == "openml"
    for name in ("pong", "door-minari"):
        with pytest.raises(UnknownDataset):
            resolve(name, root)


# What rlds 0.2 left under published ids


@pytest.fixture
def old(config: Config) -> Config:
    shutil.copytree(TEST_DATA / "formats" / "version-1" / "root", config.root)
    return config


@pytest.mark.parametrize("id", LEFT)
def test_demo_data_under_a_published_id_is_marked_and_opens_with_a_warning(
    id: str, old: Config, capsys: Capture
) -> None:
    (record,) = run_json(capsys, "list", id, "--installed")
    assert record["state"] == "unverified"
    with pytest.warns(UnverifiedDataset, match="rlds demo --keep left it"):
        ExperienceReplay(id, download=False)
    before = (CacheRoot(old.root).dataset(id) / "manifest.json").read_bytes()
    with pytest.raises(OfflineError):
        api.download(id, config=Config(old.root, offline=True), progress=Silent())
    assert (CacheRoot(old.root).dataset(id) / "manifest.json").read_bytes() == before


def test_download_installs_the_published_one_in_its_place(
    old: Config, capsys: Capture, caplog: pytest.LogCaptureFixture
) -> None:
    with Origin() as origin:
        for path, content in pages().items():
            origin.put(path.removeprefix("/"), content)
        mirror = f"{PUBLISHERS['openml']}={origin.url}openml/"
        arguments = ["download", "openml/61", "--mirror", mirror]
        (plan,) = run_json(capsys, *arguments, "--dry-run")
        assert not plan["installed"]
        assert "openml/61 holds demo data" in caplog.text
        caplog.clear()
        assert main(arguments) == 0
        assert "openml/61 holds demo data that rlds demo --keep of rlds 0.2 left" in caplog.text
        caplog.clear()
        num_asked = len(origin.requests)
        assert main(arguments) == 0
        assert len(origin.requests) == num_asked, "it is installed now"
        assert not caplog.text
    (record,) = run_json(capsys, "list", "openml/61", "--installed")
    assert record["state"] == "unchecked"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(ExperienceReplay("openml/61", download=False)) == 150


def test_a_fallback_that_is_installed_is_not_downloaded_again(
    old: Config, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = CacheRoot(old.root)
    folder = Path(shutil.copytree(root.dataset(LEFT[1]), root.dataset(f"{LEFT[1]}~unplugged")))
    manifest = read_manifest(folder)
    checked = tuple({**each, "checked": "md5"} for each in manifest.resources)
    write_manifest(folder, replace(manifest, id=f"{LEFT[1]}~unplugged", resources=checked))
    with Origin() as closed:
        monkeypatch.setattr("datasets_cli.sources.buckets.HOST", closed.url)
        run = "dqn/Pong/5/replay_logs/"
        for path in (
            f"storage/v1/b/atari-replay-datasets/o?prefix={run}",
            f"atari-replay-datasets/{run}add_count_ckpt.0.gz",
        ):
            closed.always(path, Fault(status=403))
        assert main(["download", "Pong/5"]) == 0
    assert capsys.readouterr().out.strip() == str(folder)


def test_what_was_taken_without_a_check_is_no_demo_data(door: str, config: Config) -> None:
    assert main(["download", door, "--offline"]) == 0


def test_list_and_info_have_one_word_for_one_state(
    door: str, config: Config, capsys: Capture
) -> None:
    def states() -> tuple[str, str]:
        (record,) = run_json(capsys, "list", DOOR)
        return record["state"], run_json(capsys, "info", door)["state"]

    assert states() == ("unverified", "unverified")
    (CacheRoot(config.root).dataset(door) / "action.memmap").unlink()
    assert states() == ("damaged", "damaged")
    assert main(["delete", door, "--yes", "-q"]) == 0
    capsys.readouterr()
    assert states() == ("not installed", "not installed")
