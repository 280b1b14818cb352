"""Families, recipes of a user's own, and what a typed text means."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import datasets_cli
from datasets_cli.catalogue import entries, names
from datasets_cli.catalogue.entries import all_entries, catalogue, load_recipe, refresh
from datasets_cli.catalogue.names import resolve
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import RldsError, UnknownDataset, UsageError
from datasets_cli.recipe import CatalogueEntry, Option
from datasets_cli.store.cache_root import CacheRoot, check_id
from tests.support.refusals import refused
from tests.support.user_recipe import RECIPE


def test_a_name_resolves_with_and_without_its_family(root: CacheRoot) -> None:
    assert resolve("d4rl/pen-human-v1", root).id == "d4rl/pen-human-v1"
    assert resolve("pen-human-v1", root).id == "d4rl/pen-human-v1"
    assert resolve("D4RL/door/human-v2", root).id == "minari/D4RL/door/human-v2"


def test_a_missing_version_means_the_newest_and_a_wrong_one_nothing(
    root: CacheRoot, user_folder: Path
) -> None:
    (user_folder / "mine.py").write_text(RECIPE.format(family="mine"))
    assert resolve("mine/one", root).name == "one-v10"
    with refused(UnknownDataset, found=("mine/one-v2", "mine/one-v1", "mine/one-v10")):
        resolve("mine/one-v3", root)


def test_a_misspelt_name_of_an_own_dataset_finds_that_one_first(root: CacheRoot) -> None:
    folder = root.dataset("mine/door")
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")
    with pytest.raises(UnknownDataset) as caught:
        resolve("mine/dor", root)
    assert caught.value.found[0] == "mine/door"


def test_a_name_of_two_families_asks_for_the_family(root: CacheRoot, user_folder: Path) -> None:
    (user_folder / "mine.py").write_text(RECIPE.format(family="mine"))
    with refused(UsageError, found=("d4rl/hopper-medium-v2", "mine/hopper-medium-v2")):
        resolve("hopper-medium-v2", root)


def test_a_recipe_may_find_what_a_name_outside_the_catalogue_means(
    root: CacheRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(name: str, web: Any) -> CatalogueEntry | None:
        return CatalogueEntry(f"{name}-{web}") if web else None

    finding = replace(load_recipe("minari"), find=find)
    monkeypatch.setattr(names, "load_recipe", lambda family: finding)
    assert resolve("minari/mine", root, web=lambda: "newest").id == "minari/mine-newest"  # type: ignore[arg-type]
    with pytest.raises(UnknownDataset):
        resolve("minari/mine", root)


def test_an_unlisted_name_needs_a_family_that_allows_it(root: CacheRoot) -> None:
    assert resolve("minari/my/own-v0", root, unlisted=True).entry is None
    with pytest.raises(UnknownDataset):
        resolve("minari/my/own-v0", root)
    with pytest.raises(UnknownDataset):
        resolve("d4rl/my-own-v0", root, unlisted=True)


@pytest.mark.parametrize(
    "id", ["", "a//b", "/a", "a/", "..", "a/../b", "-a", "a/.b", "a\\b", "a\0", "a b", "x" * 300]
)
def test_an_id_is_a_relative_path_of_plain_names(id: str) -> None:
    with pytest.raises(UsageError):
        check_id(id)


@pytest.mark.parametrize(
    ("text", "expected"), [("d4rl/pen-human-v1", ()), ("Pong/5", ("checkpoints", "upstream"))]
)
def test_an_option_that_a_family_does_not_declare_is_refused_with_those_it_has(
    text: str, expected: tuple[str, ...], root: CacheRoot
) -> None:
    with refused(UsageError, argument="options", expected=expected, found=("colour",)):
        resolve(text, root, options={"colour": "red"})


def test_a_declared_option_reaches_the_family(
    root: CacheRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    coloured = replace(
        load_recipe("d4rl"),
        options=(Option("colour", "NAME", "what it looks like"),),
        variant=lambda name, options: f"{name}~{options['colour']}" if options else name,
    )
    monkeypatch.setattr(names, "load_recipe", lambda family: coloured)
    assert resolve("d4rl/pen-human-v1", root, options={"colour": "red"}).name == "pen-human-v1~red"
    assert resolve("d4rl/pen-human-v1", root).name == "pen-human-v1"
    with refused(UsageError, argument="options", found=("shape",)):
        resolve("d4rl/pen-human-v1", root, options={"colour": "red", "shape": "round"})


WITH_OPTION = """
from dataclasses import replace
from datasets_cli.recipe import Option
RECIPE = replace(
    RECIPE,
    datasets=lambda web: map(CatalogueEntry, ("steps", "steps~half-yes")),
    variant=lambda name, options: f"{name}~half-{options['half']}" if options else name,
    options=(Option("half", "yes", "only the first half"),),
)
"""


def test_options_of_any_family_are_shown_and_taken(
    user_folder: Path, config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    (user_folder / "toy.py").write_text(RECIPE.format(family="toy") + WITH_OPTION)
    assert main(["info", "toy/steps"]) == 0
    shown = capsys.readouterr().out
    assert "option             -o half=yes: only the first half\n" in shown
    assert datasets_cli.dataset_info("toy/steps").to_json()["options"] == [
        {"name": "half", "value": "yes", "help": "only the first half"}
    ]
    for words, id in (([], "toy/steps"), (["-o", "half=yes"], "toy/steps~half-yes")):
        assert main(["download", "toy/steps", *words, "--json"]) == 0
        (made,) = json.loads(capsys.readouterr().out)["datasets"]
        assert (made["id"], made["num_transitions"]) == (id, 2)


VERBS: dict[str, Callable[..., Any]] = {
    "download": datasets_cli.download,
    "plan_download": datasets_cli.plan_download,
    "delete": datasets_cli.delete,
    "verify": datasets_cli.verify,
    "audit_datasets": datasets_cli.audit_datasets,
    "disk_usage": datasets_cli.disk_usage,
    "find_overlap": datasets_cli.find_overlap,
    "repair": datasets_cli.repair,
    "match_datasets": datasets_cli.match_datasets,
}


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS.keys())
def test_no_id_at_all_is_refused(verb: Callable[..., Any], config: Config, door: str) -> None:
    for ids in ([], (), iter(())):
        with refused(UsageError, argument="ids"):
            verb(ids, config=config)
    assert (config.root / "datasets" / door).exists()


def test_a_users_recipe_installs_like_any_other(user_folder: Path, config: Any) -> None:
    from datasets_cli.install.installation import install_dataset
    from datasets_cli.verbs.verify import verify_installed as verify

    (user_folder / "mine.py").write_text(RECIPE.format(family="mine"))
    install_dataset("one-v1", config)
    assert verify("mine/one-v1", config).num_transitions == 2


def test_a_users_recipe_of_a_taken_name_is_refused(user_folder: Path) -> None:
    (user_folder / "d4rl.py").write_text(RECIPE.format(family="d4rl"))
    with refused(UsageError, found="d4rl"):
        entries.families()


@pytest.mark.parametrize(
    "text", ["RECIPE = 1", "def (", "import nosuchmodule", "1 / 0", "RECIPE = Recipe()", RECIPE]
)
def test_a_broken_recipe_is_named_and_hides_no_other(
    user_folder: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (user_folder / "mine.py").write_text(
        text.replace("{family}", "other").replace("{{", "{").replace("}}", "}")
    )
    families = [recipe.family for recipe in entries.recipes()]
    assert {"d4rl", "minari"} <= set(families)
    assert "mine" not in families
    assert "mine" in caplog.text
    with pytest.raises(RldsError, match="recipe mine"):
        entries.load_recipe("mine")


def test_a_list_of_a_family_loads_no_other_recipe(
    config: Config, user_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (user_folder / "mine.py").write_text("1 / 0")
    listed = datasets_cli.list_datasets(family="demo", config=config)
    assert {record.id.partition("/")[0] for record in listed} == {"demo"}
    assert not caplog.text


def test_a_recipe_that_cannot_list_its_datasets_is_named_and_hides_no_other(
    user_folder: Path, root: CacheRoot, caplog: pytest.LogCaptureFixture
) -> None:
    text = RECIPE.format(family="mine").replace("CatalogueEntry, (", "NoSuchName, (")
    (user_folder / "mine.py").write_text(text)
    assert {id.partition("/")[0] for id in all_entries(root)} >= {"d4rl", "minari"}
    failed = "recipe mine cannot list its datasets: NameError: name 'NoSuchName' is not defined."
    assert failed in caplog.text
    assert resolve("pen-human-v1", root).id == "d4rl/pen-human-v1"
    with pytest.raises(RldsError, match=failed):
        resolve("mine/one-v1", root)


def test_a_refreshed_catalogue_is_kept_and_a_damaged_one_ignored(root: CacheRoot) -> None:
    minari = load_recipe("minari")
    fresh = replace(
        minari,
        datasets=lambda web: (
            [CatalogueEntry("new-v0", size=5)] if web else [CatalogueEntry("old-v0")]
        ),
    )
    assert refresh(fresh, root, web=object()) == 1  # type: ignore[arg-type]
    assert sorted(catalogue(fresh, root)) == ["new-v0", "old-v0"]
    root.catalogue("minari").write_text("{")
    assert sorted(catalogue(fresh, root)) == ["old-v0"]
