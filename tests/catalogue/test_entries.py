"""Families: those that ship, and recipes of a user's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from datasets_cli.catalogue import entries
from datasets_cli.catalogue.entries import all_entries, catalogue, load_recipe, refresh
from datasets_cli.catalogue.names import resolve
from datasets_cli.errors import RldsError, UsageError
from datasets_cli.recipe import CatalogueEntry
from datasets_cli.store.cache_root import CacheRoot
from tests.support.refusals import refused
from tests.support.user_recipe import RECIPE


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
