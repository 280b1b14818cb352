"""Data that ships with the package: ids of its own, and never a published one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import datasets_cli
from datasets_cli import (
    AtariDQNExperienceReplay,
    D4RLExperienceReplay,
    ExperienceReplay,
    MinariExperienceReplay,
    OpenMLExperienceReplay,
)
from datasets_cli.catalogue.entries import load_recipe
from datasets_cli.catalogue.names import resolve
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import UnknownDataset
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.manifest import read_manifest
from tests.conftest import DOOR
from tests.support.conformance import CASES
from tests.support.paths import DEMO_DATA
from tests.support.values import assert_folder

Capture = pytest.CaptureFixture[str]
DEMOS = {
    "demo/door-human": D4RLExperienceReplay,
    "demo/door-minari": MinariExperienceReplay,
    "demo/iris": OpenMLExperienceReplay,
    "demo/pong": AtariDQNExperienceReplay,
}


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
    assert list(stops) == list(DEMOS) and all(stop["new"] for stop in stops.values())
    records = run_json(capsys, "list", "--installed")
    assert [record["id"] for record in records] == list(DEMOS)
    for record in records:
        stop = stops[record["id"]]
        assert (record["state"], record["installed"]) == ("installed", True)
        assert len(ExperienceReplay(record["id"], download=False)) == stop["num_transitions"]
        assert main(["info", record["id"]]) == 0
        told = " ".join(capsys.readouterr().out.split())
        assert f"demo data, a sample of {load_sample(record['id'])}: {stop['about']}" in told
    assert main(["verify"]) == 0
    assert not any(stop["new"] for stop in run_json(capsys, "demo", "--keep"))


def load_sample(id: str) -> str:
    """Return the published id that a dataset of the demo is a sample of."""
    return str(datasets_cli.dataset_info(id).to_json()["details"]["sample_of"])


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


@pytest.mark.parametrize(
    ("id", "family"), [*zip(DEMOS, ("d4rl", "minari", "openml", "atari_dqn"), strict=True)]
)
def test_each_has_the_values_that_an_independent_reader_finds(
    id: str, family: str, config: Config
) -> None:
    offline = Config(config.root, offline=True)
    folder = install_dataset(id, offline, InstallOptions(layout="ted")).path
    assert_folder(folder, CASES[family].expected())
    assert load_sample(id) == CASES[family].id


def test_the_catalogue_has_every_file_and_its_numbers(config: Config) -> None:
    recipe, found = load_recipe("demo"), set()
    for entry in recipe.datasets(None):
        files = recipe.resources(entry.name, None)
        found |= {file.filename for file in files}
        manifest = read_manifest(install_dataset(f"demo/{entry.name}", config).path)
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


def test_a_name_without_its_family_is_never_the_demo_s(config: Config) -> None:
    root = CacheRoot(config.root)
    assert resolve("door-human", root).id == "d4rl/door-human-v1"
    assert resolve("iris", root).recipe.family == "openml"
    for name in ("pong", "door-minari"):
        with pytest.raises(UnknownDataset):
            resolve(name, root)


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
