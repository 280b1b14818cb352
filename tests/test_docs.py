"""The documentation names what there is; test_pages.py runs its code."""

from __future__ import annotations

import doctest
import importlib
import re
import runpy
import tomllib
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import datasets_cli
from benchmarks import measure
from datasets_cli import HindsightStrategy, errors
from datasets_cli.audit.own_rules import GROUP
from datasets_cli.catalogue import entries
from datasets_cli.config import Config
from datasets_cli.errors import UsageError
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.verbs.verify import verify_installed as verify
from tests.support import executed
from tests.support.paths import PROJECT
from tests.support.refusals import refused

Capture = pytest.CaptureFixture[str]


def test_every_exit_code_is_documented() -> None:
    text = (PROJECT / "docs" / "command-line.md").read_text(encoding="utf-8")
    classes = [value for value in vars(errors).values() if isinstance(value, type)]
    for code in {cls.exit_code for cls in classes if issubclass(cls, errors.RldsError)}:
        assert f"\n| {code} |" in text


def test_the_readme_is_read_in_three_minutes_and_shows_what_a_terminal_does(tmp_path: Path) -> None:
    text = (PROJECT / "README.md").read_text(encoding="utf-8")
    assert text.count("\n") <= 120
    picture = runpy.run_path(str(PROJECT / "scripts" / "picture"))
    drawn = picture["drawn"](picture["screen"]())
    assert drawn == picture["PICTURE"].read_text(encoding="utf-8"), "run scripts/picture"


def test_the_pictures_of_the_page_on_looking_are_what_their_script_draws(tmp_path: Path) -> None:
    lines = runpy.run_path(str(PROJECT / "scripts" / "pictures"))["draw"](tmp_path / "drawn")
    page = (PROJECT / "docs" / "look.md").read_text(encoding="utf-8")
    assert "\n".join(lines) in page, "run scripts/pictures, and copy what it prints"
    pictures = sorted((tmp_path / "drawn").iterdir())
    for picture in pictures:
        kept = PROJECT / "docs" / picture.name
        assert f"]({picture.name})" in page and kept.stat().st_size < 150_000
        if picture.suffix == ".svg":
            assert kept.read_text() == picture.read_text(), "run scripts/pictures"
        else:
            with Image.open(kept) as old, Image.open(picture) as new:
                assert (np.asarray(old) == np.asarray(new)).all(), "run scripts/pictures"
    assert len(pictures) == 3


def test_the_first_page_names_every_extra() -> None:
    extras = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    text = (PROJECT / "docs" / "start.md").read_text(encoding="utf-8")
    named = re.findall(r"`(\w+)`", text.partition("[fast,plot]'`:")[2].partition("`rlds env`")[0])
    assert {*named} - {"datasets"} == extras["project"]["optional-dependencies"].keys()


def test_the_page_on_goals_names_every_strategy() -> None:
    text = (PROJECT / "docs" / "goals.md").read_text(encoding="utf-8")
    assert re.findall(r'^\| `"(\w+)"` \|', text, re.MULTILINE) == list(HindsightStrategy)


def test_the_recipe_of_the_guide_installs(
    tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = executed.blocks("docs/adding-a-dataset.md")[0].code
    (tmp_path / "lunar.py").write_text(code)
    ends = np.array([False, False, True, False, True])
    columns = {"obs": np.arange(10.0).reshape(5, 2), "act": np.arange(5), "rew": np.arange(5.0)}
    np.savez(tmp_path / "easy-v1.npz", **columns, term=np.zeros(5, bool), last=ends)
    package = importlib.import_module("datasets_cli.recipes")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    entries.families.cache_clear()
    try:
        install_dataset(
            "lunar/easy-v1", config, InstallOptions(source=str(tmp_path), accept_any=True)
        )
        assert verify("easy-v1", config).final_steps == 2
        (tmp_path / "easy-v1.npz").rename(tmp_path / "easy-v1-windy.npz")
        windy = InstallOptions(
            source=str(tmp_path), accept_any=True, options={"wind": "on", "force": "4"}
        )
        with refused(UsageError, argument="options", found=("force",)):
            install_dataset("lunar/easy-v1", config, windy)
        folder = install_dataset(
            "lunar/easy-v1", config, replace(windy, options={"wind": "on"})
        ).path
        assert folder.name == "easy-v1~windy"
    finally:
        entries.families.cache_clear()


def test_pages_name_what_datasets_cli_has() -> None:
    named = set()
    for page in [PROJECT / "README.md", *(PROJECT / "docs").rglob("*.md")]:
        text = page.read_text(encoding="utf-8")
        named |= {(page.name, name) for name in re.findall(r"\bdatasets_cli\.(\w+)", text)}
    groups = {GROUP.partition(".")[2]}  # of entry points, which need not be modules
    missing = [(page, name) for page, name in named if not (name in groups or has(name))]
    assert len(named) > 50 and missing == []


def has(name: str) -> bool:
    return hasattr(datasets_cli, name) or find_spec(f"datasets_cli.{name}") is not None


def test_the_glossary_has_each_word_once_and_names_what_exists() -> None:
    text = (PROJECT / "docs" / "glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\*.+?) \| (.+) \| `(.+?)` \|$", text, re.MULTILINE)
    assert len(rows) == text.count("\n| *"), "a row has another form"
    words = [word for row in rows for word in re.findall(r"\*(.+?)\*", row[0])]
    assert len(words) == len(set(words)) and len(words) >= 50
    for _, _, place in rows:
        if place.endswith(".py"):
            assert (PROJECT / "datasets_cli" / place).is_file(), place
            continue
        module, _, name = place.rpartition(".")
        assert isinstance(getattr(importlib.import_module(f"datasets_cli.{module}"), name), type)


def test_links_of_documents_outside_the_site_lead_somewhere() -> None:
    for document in [*PROJECT.glob("*.md"), PROJECT / "benchmarks" / "README.md"]:
        for target in re.findall(r"\]\(([^)#]+)", document.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (document.parent / target).exists(), f"{document.name}: {target}"


WITH_EXAMPLES = {
    *("cli.terminal", "errors", "core.quantities", "experience.replay"),
    *("store.cache_root", "replay.mixing.offline_to_online", "replay.mixing.weights"),
    *("replay.samplers.prioritized", "replay.transforms.images", "replay.transforms.scaling"),
    *("replay.transforms.entries", "torchrl.frame_stacks"),
}


def test_examples_in_docstrings_are_true(door: str) -> None:
    found = set()
    for path in PROJECT.joinpath("datasets_cli").rglob("*.py"):
        if ">>> " not in path.read_text(encoding="utf-8"):
            continue
        name = ".".join(path.relative_to(PROJECT).with_suffix("").parts)
        module = importlib.import_module(name)
        num_written = sum(len(test.examples) for test in doctest.DocTestFinder().find(module))
        results = doctest.testmod(module)
        assert (results.failed, results.attempted) == (0, num_written), f"{name}: skipped or wrong"
        if num_written:
            found.add(name.removeprefix("datasets_cli."))
    assert found == WITH_EXAMPLES


def test_every_test_that_the_page_on_reliability_names_is_there() -> None:
    page = (PROJECT / "docs/reliability.md").read_text(encoding="utf-8")
    named = re.findall(r"([\w/]+\.py)::(\w+)", page)
    missing = [
        (file, name)
        for file, name in named
        if f"def test_{name}(" not in (PROJECT / "tests" / file).read_text(encoding="utf-8")
    ]
    assert len(named) > 100 and missing == []


def test_the_speed_that_the_readme_claims_is_that_of_the_benchmarks() -> None:
    page = (PROJECT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    found = re.findall(measure.CLAIM, (PROJECT / "README.md").read_text(encoding="utf-8"))
    assert [" ".join(each.split()) for each in found] == measure.speed_claims(page)


def test_the_page_names_every_benchmark_and_has_a_table_for_each() -> None:
    page = (PROJECT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    files = {path.stem for path in (PROJECT / "benchmarks").glob("*.py")} - {"measure"}
    named = re.findall(r"^\| `python -m benchmarks\.(\w+)` \|", page, re.MULTILINE)
    marked = re.findall(r"^<!-- (\w+) -->\n", page, re.MULTILINE)
    assert files == {*measure.NAMES} == {*named}
    assert [name for name in marked if name != "end"] == named
