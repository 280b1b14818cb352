"""Ids, catalogues and the recipes of users."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from datasets_cli.catalogue import registry
from datasets_cli.errors import RldsError, UnknownDataset, UsageError
from datasets_cli.recipe import CatalogueEntry
from datasets_cli.store.cache_root import CacheRoot, check_id

RECIPE = """
import numpy as np
from datasets_cli.recipe import Block, Recipe, CatalogueEntry

RECIPE = Recipe(
    family="{family}", version=1, title="mine", licence="", citation="", homepage="",
    datasets=lambda web: [
        *map(CatalogueEntry, ("one-v1", "one-v2", "one-v10", "hopper-medium-v2"))
    ],
    resources=lambda name, web: [],
    blocks=lambda source: iter([Block({{("observation",): np.arange(3.0)[:, None],
        ("action",): np.zeros(3), ("next", "reward"): np.ones(3)}})]),
)
"""


@pytest.fixture
def root(tmp_path: Path) -> CacheRoot:
    return CacheRoot(tmp_path / "root")


@pytest.fixture
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of recipes, as $RLDS_RECIPES names one to a new process."""
    package = sys.modules.get("datasets_cli.recipes") or __import__("datasets_cli.recipes").recipes
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    forget()
    yield tmp_path
    forget()
    sys.modules.pop("datasets_cli.recipes.mine", None)


def forget() -> None:
    registry.families.cache_clear()
    registry.load_recipe.cache_clear()


def test_a_name_resolves_with_and_without_its_family(root: CacheRoot) -> None:
    assert registry.resolve("d4rl/pen-human-v1", root).id == "d4rl/pen-human-v1"
    assert registry.resolve("pen-human-v1", root).id == "d4rl/pen-human-v1"
    assert registry.resolve("D4RL/door/human-v2", root).id == "minari/D4RL/door/human-v2"


def test_a_missing_version_means_the_newest_and_a_wrong_one_nothing(
    root: CacheRoot, user_folder: Path
) -> None:
    (user_folder / "mine.py").write_text(RECIPE.format(family="mine"))
    assert registry.resolve("mine/one", root).name == "one-v10"
    with pytest.raises(UnknownDataset, match="mine/one-v"):
        registry.resolve("mine/one-v3", root)


def test_a_name_of_two_families_asks_for_the_family(root: CacheRoot, user_folder: Path) -> None:
    (user_folder / "mine.py").write_text(RECIPE.format(family="mine"))
    with pytest.raises(UsageError, match="d4rl/hopper-medium-v2 or mine/hopper-medium-v2"):
        registry.resolve("hopper-medium-v2", root)


def test_a_users_recipe_installs_like_any_other(user_folder: Path, config: Any) -> None:
    from datasets_cli.install.install import install_dataset
    from datasets_cli.install.installed import verify

    (user_folder / "mine.py").write_text(RECIPE.format(family="mine"))
    install_dataset("one-v1", config)
    assert verify("mine/one-v1", config).num_transitions == 2


def test_a_users_recipe_of_a_taken_name_is_refused(user_folder: Path) -> None:
    (user_folder / "d4rl.py").write_text(RECIPE.format(family="d4rl"))
    with pytest.raises(UsageError, match="two recipes named d4rl"):
        registry.families()


@pytest.mark.parametrize("text", ["RECIPE = 1", "def (", "import nosuchmodule", RECIPE])
def test_a_broken_recipe_is_named_and_hides_no_other(
    user_folder: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (user_folder / "mine.py").write_text(
        text.replace("{family}", "other").replace("{{", "{").replace("}}", "}")
    )
    families = [recipe.family for recipe in registry.recipes()]
    assert {"d4rl", "minari"} <= set(families)
    assert "mine" not in families
    assert "mine" in caplog.text
    with pytest.raises(RldsError, match="recipe mine"):
        registry.load_recipe("mine")


def test_a_recipe_may_find_what_a_name_outside_the_catalogue_means(
    root: CacheRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(name: str, web: Any) -> CatalogueEntry | None:
        return CatalogueEntry(f"{name}-{web}") if web else None

    finding = replace(registry.load_recipe("minari"), find=find)
    monkeypatch.setattr(registry, "load_recipe", lambda family: finding)
    assert registry.resolve("minari/mine", root, web="newest").id == "minari/mine-newest"  # type: ignore[arg-type]
    with pytest.raises(UnknownDataset):
        registry.resolve("minari/mine", root)


def test_an_unlisted_name_needs_a_family_that_allows_it(root: CacheRoot) -> None:
    assert registry.resolve("minari/my/own-v0", root, unlisted=True).row is None
    with pytest.raises(UnknownDataset):
        registry.resolve("minari/my/own-v0", root)
    with pytest.raises(UnknownDataset):
        registry.resolve("d4rl/my-own-v0", root, unlisted=True)


@pytest.mark.parametrize(
    "id", ["", "a//b", "/a", "a/", "..", "a/../b", "-a", "a/.b", "a\\b", "a\0", "a b", "x" * 300]
)
def test_an_id_is_a_relative_path_of_plain_names(id: str) -> None:
    with pytest.raises(UsageError):
        check_id(id)


def test_a_refreshed_catalogue_is_kept_and_a_damaged_one_ignored(root: CacheRoot) -> None:
    minari = registry.load_recipe("minari")
    fresh = replace(
        minari,
        datasets=lambda web: (
            [CatalogueEntry("new-v0", size=5)] if web else [CatalogueEntry("old-v0")]
        ),
    )
    assert registry.refresh(fresh, root, web=object()) == 1  # type: ignore[arg-type]
    assert sorted(registry.catalogue(fresh, root)) == ["new-v0", "old-v0"]
    root.catalogue("minari").write_text("{")
    assert sorted(registry.catalogue(fresh, root)) == ["old-v0"]
