"""Recipes listed, begun and checked; what is wrong with one is said with its line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import datasets_cli
import datasets_cli.recipes as recipes
from datasets_cli.catalogue import entries
from datasets_cli.cli.main import main
from datasets_cli.config import config_folder
from datasets_cli.errors import DiskFull, RldsError, SourceError, UnknownDataset, UsageError
from datasets_cli.verbs.recipes import TEMPLATE
from tests.support.disks import Disks
from tests.support.paths import PROJECT
from tests.support.refusals import refused

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def families_of_the_program(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Families are those of the program, whatever other tests put into folders."""
    monkeypatch.setattr(recipes, "__path__", recipes.__path__[:1])
    entries.families.cache_clear()
    entries.load_recipe.cache_clear()
    yield
    entries.families.cache_clear()
    entries.load_recipe.cache_clear()


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """What ``recipe new`` writes."""
    return Path(datasets_cli.new_recipe("lander").place)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The files of the first dataset of that recipe."""
    ends = np.array([False, False, True, False, True])
    columns = {"observations": np.arange(10.0).reshape(5, 2), "actions": np.arange(5)}
    columns |= {"rewards": np.arange(5.0), "terminals": np.zeros(5, bool), "timeouts": ends}
    (tmp_path / "source").mkdir()
    np.savez(tmp_path / "source" / "first-v0.npz", **columns)
    return tmp_path / "source"


def test_a_new_recipe_passes_its_check_and_reads_a_source(recipe: Path, source: Path) -> None:
    checked = datasets_cli.check_recipe(recipe)
    assert (checked.family, checked.num_datasets, checked.report) == ("lander", 2, None)
    read = datasets_cli.check_recipe(recipe, source=source)
    assert read.report and read.id == "lander/first-v0"
    assert (read.report.num_transitions, read.report.num_trajectories) == (3, 2)
    assert read.notes[0].startswith("5 recorded steps, 3 transitions")
    assert "datasets_cli.recipes.lander" not in sys.modules


def test_the_recipes_of_the_program_pass_and_are_listed_with_their_files() -> None:
    listed = {each.family: each for each in datasets_cli.list_recipes()}
    folders = {each.parent.name for each in (PROJECT / "recipes").glob("*/catalogue.py")}
    assert {*listed} == folders
    for family, each in listed.items():
        assert (each.source, Path(each.place).parent.name) == ("package", family)
        assert datasets_cli.check_recipe(Path(each.place).parent).family == family


def test_one_of_a_users_folder_and_of_another_package_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    for family in ("lander", "broken"):
        (tmp_path / f"{family}.py").write_text(TEMPLATE.format(family=family, path=""))
    (tmp_path / "broken.py").write_text("1 / 0")
    monkeypatch.setattr(recipes, "__path__", [*recipes.__path__, str(tmp_path)])
    entries.families.cache_clear()
    info = datasets_cli.recipe_info("lander")
    assert (info.source, info.place) == ("file", str(tmp_path / "lander.py"))
    assert "ZeroDivisionError" in str(datasets_cli.recipe_info("broken").error)
    assert main(["recipe", "list"]) == 0
    assert f"{tmp_path / 'broken.py'}: " in (out := capsys.readouterr().out)
    assert "ZeroDivisionError" in out
    assert main(["recipe", "show", "lander"]) == 0 and "lander.py" in capsys.readouterr().out
    with refused(UnknownDataset, argument="family", found="landr"):
        datasets_cli.recipe_info("landr")


def test_a_full_disk_leaves_no_new_recipe(disks: Disks, capsys: Capture) -> None:
    folder = config_folder() / "recipes"
    disks.put(folder, size_bytes=4096)
    (folder / "other").write_bytes(bytes(4096))
    with pytest.raises(DiskFull):
        datasets_cli.new_recipe("lander")
    assert [each.name for each in folder.iterdir()] == ["other"]


def test_a_check_of_a_dataset_needs_its_files_and_a_recipe_must_be_there(recipe: Path) -> None:
    with refused(UsageError, argument="dataset"):
        datasets_cli.check_recipe(recipe, dataset="first-v0")
    with refused(UsageError, argument="file"):
        datasets_cli.check_recipe(recipe.parent / "nosuch.py")


WRONG = {
    "syntax": ("def datasets(web):", "def datasets(web)", "SyntaxError"),
    "name": ('[CatalogueEntry("first-v0")', '[nosuch("first-v0")', "in line 14: NameError"),
    "entries": ('[CatalogueEntry("first-v0")', '["first-v0"', "expected CatalogueEntry"),
    "twice": ('"second-v0"', '"first-v0"', "with different names"),
    "an id": ('"first-v0"', '"first v0"', "is not a dataset id"),
    "files": ("[Resource(urls=", "[dict(urls=", "expected Resources"),
    "family": ('Recipe("lander"', 'Recipe("solar"', "family='lander'"),
    "nothing": ("RECIPE =", "RECIPES =", "must define RECIPE"),
    "an option": ('"lander", 1,', '"lander", 1, colour=2,', "TypeError"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_with_a_recipe_is_said(case: str, recipe: Path, capsys: Capture) -> None:
    before, after, words = WRONG[case]
    assert before in recipe.read_text()
    recipe.write_text(recipe.read_text().replace(before, after))
    with pytest.raises(RldsError) as caught:
        datasets_cli.check_recipe(recipe)
    assert words in str(caught.value)
    assert main(["recipe", "check", str(recipe)]) == caught.value.exit_code
    assert "Traceback" not in capsys.readouterr().err


def test_what_is_wrong_with_what_it_reads_is_said(recipe: Path, source: Path) -> None:
    text = recipe.read_text()
    for after in ('file["act"]', 'file["actions"][:3]'):
        recipe.write_text(text.replace('file["actions"]', after))
        with refused(SourceError, id="lander/first-v0"):
            datasets_cli.check_recipe(recipe, source=source)
    recipe.write_text(text)
    for name, folder in (("second-v0", source), (None, source / "nowhere")):
        with pytest.raises(UsageError):
            datasets_cli.check_recipe(recipe, source=folder, dataset=name)


@pytest.mark.parametrize(
    "family", ["d4rl", "derived", "lander", "Lunar", "a-b", "class", "", "../x"]
)
def test_a_family_that_cannot_be_is_not_begun(family: str, recipe: Path) -> None:
    before = recipe.read_text()
    with pytest.raises(UsageError):
        datasets_cli.new_recipe(family)
    assert recipe.read_text() == before and [*recipe.parent.iterdir()] == [recipe]
