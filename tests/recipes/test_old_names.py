"""A recipe written to the docs of the release before loads, installs, and is told the new words."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from datasets_cli import recipe
from datasets_cli.catalogue import registry
from datasets_cli.catalogue.entries import all_entries
from datasets_cli.catalogue.names import resolve
from datasets_cli.config import Config
from datasets_cli.errors import RldsError, UsageError
from datasets_cli.formats import gzip, hdf5
from datasets_cli.install.install import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.installed.verification import verify
from datasets_cli.recipe import CatalogueEntry, DeferredFrames, Recipe, Source
from datasets_cli.store.cache_root import CacheRoot

# Exactly the recipe of docs/adding-a-dataset.md as it was.
LUNAR = '''
"""Lunar: one .npz a dataset, written by our own collector."""

from datasets_cli.recipe import CUT, Block, Recipe, Resource, Row

BASE = "https://example.org/lunar/"


def datasets(web):
    return [Row("easy-v1", size=1_204_512), Row("hard-v1")]


def resources(name, web):
    return [Resource(urls=(f"{BASE}{name}.npz",), filename=f"{name}.npz")]


def blocks(source):
    import numpy as np

    with np.load(source.files[f"{source.name}.npz"]) as file:
        yield Block(
            {
                ("observation",): file["obs"],
                ("action",): file["act"],
                ("next", "reward"): file["rew"],
                ("next", "terminated"): file["term"],
                CUT: file["last"],
            }
        )


RECIPE = Recipe(
    family="lunar",
    version=1,
    title="Lunar lander rollouts",
    licence="CC BY 4.0",
    citation="",
    homepage="https://example.org/lunar",
    datasets=datasets,
    resources=resources,
    blocks=blocks,
)
'''.lstrip()

# What that page says of pictures and of a source's row, as a recipe of that day had it.
SCREENS = """
import numpy as np

from datasets_cli.recipe import Block, Pictures, Recipe, Row


def read(part):
    yield Block({("observation",): np.full((3, 40, 40), part, np.uint8)}, start=0)


def blocks(source):
    assert source.row.details["game"] == "pong"
    yield Block(
        {
            ("action",): np.arange(3),
            ("next", "reward"): np.ones(3),
            ("next", "terminated"): np.array([False, False, True]),
        }
    )


RECIPE = Recipe(
    family="screens",
    version=1,
    title="",
    licence="",
    citation="",
    homepage="",
    datasets=lambda web: [Row("one", details={"game": "pong"})],
    resources=lambda name, web: [],
    blocks=blocks,
    pictures=lambda source: Pictures(("observation",), (40, 40), [7], read),
)
""".lstrip()
NEW_WORDS = (
    "TRAJECTORY_END for CUT, CatalogueEntry for Row, DeferredFrames for Pictures",
    "Recipe(deferred_frames=...) for Recipe(pictures=...)",
    "source.entry for source.row",
    "the options that variant takes in Recipe.options",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    package = importlib.import_module("datasets_cli.recipes")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    registry.families.cache_clear()
    yield tmp_path
    registry.families.cache_clear()
    registry.load_recipe.cache_clear()
    for name in ("lunar", "screens"):
        sys.modules.pop(f"datasets_cli.recipes.{name}", None)


def assert_told_once(told: pytest.WarningsRecorder, path: Path) -> None:
    (warning,) = told
    assert warning.category is DeprecationWarning
    assert warning.filename == str(path)
    for words in NEW_WORDS:
        assert words in str(warning.message)


def test_yesterdays_recipe_installs_and_is_told_once(folder: Path, config: Config) -> None:
    path = folder / "lunar.py"
    path.write_text(LUNAR)
    ends = np.array([False, False, True, False, True])
    columns = {"obs": np.arange(10.0).reshape(5, 2), "act": np.arange(5), "rew": np.arange(5.0)}
    np.savez(folder / "easy-v1.npz", **columns, term=np.zeros(5, bool), last=ends)
    options = InstallOptions(source=str(folder), accept_any=True)
    with pytest.warns(DeprecationWarning) as told:
        install_dataset("lunar/easy-v1", config, options)
    assert_told_once(told, path)
    assert verify("easy-v1", config).successors["dropped_steps"] == 2


def test_pictures_and_the_row_of_a_source_are_told_once(folder: Path, config: Config) -> None:
    path = folder / "screens.py"
    path.write_text(SCREENS)
    with pytest.warns(DeprecationWarning) as told:
        install_dataset("screens/one", config)
    assert_told_once(told, path)
    manifest = verify("screens/one", config)
    assert (manifest.layout, manifest.num_transitions) == ("compact", 3)


VARIANT = """
from datasets_cli.recipe import CatalogueEntry, Recipe


def variant(name, options):
    return name + "".join(f"~{key}{value}" for key, value in sorted(options.items()))


RECIPE = Recipe(
    family="screens",
    version=1,
    title="",
    licence="",
    citation="",
    homepage="",
    datasets=lambda web: [CatalogueEntry("one")],
    resources=lambda name, web: [],
    blocks=lambda source: iter(()),
    variant=variant,
)
""".lstrip()


def test_a_variant_without_declared_options_takes_those_of_the_release_before(
    folder: Path, config: Config
) -> None:
    path = folder / "screens.py"
    path.write_text(VARIANT)
    root = CacheRoot(config.root)
    with pytest.warns(DeprecationWarning) as told:
        for value in ("0:5", "5:9"):
            found = resolve("one", root, options={"checkpoints": value, "upstream": "x"})
            assert found.name == f"one~checkpoints{value}~upstreamx"
    assert_told_once(told, path)
    assert resolve("one", root).name == "one"
    with pytest.raises(UsageError, match="no option colour"):
        resolve("one", root, options={"checkpoints": "0:5", "colour": "red"})


def test_a_recipe_without_a_variant_takes_no_options(folder: Path, config: Config) -> None:
    (folder / "screens.py").write_text(VARIANT.replace("    variant=variant,\n", ""))
    with pytest.raises(UsageError, match="screens has no option checkpoints"):
        resolve("one", CacheRoot(config.root), options={"checkpoints": "0:5"})


@pytest.mark.parametrize(
    ("called", "failed"),
    [("lambda web: [Row('one')]", "cannot list its datasets"), ("Row", "cannot be loaded")],
)
def test_an_old_name_of_a_star_import_stops_nothing_and_is_told_the_new_words(
    folder: Path, config: Config, called: str, failed: str, caplog: pytest.LogCaptureFixture
) -> None:
    text = VARIANT.replace("import CatalogueEntry, Recipe", "import *")
    (folder / "screens.py").write_text(text.replace('lambda web: [CatalogueEntry("one")]', called))
    root = CacheRoot(config.root)
    assert {id.partition("/")[0] for id in all_entries(root)} >= {"d4rl", "minari"}
    assert f"recipe screens {failed}: NameError: name 'Row' is not defined." in caplog.text
    assert "CatalogueEntry for Row" in caplog.text
    assert resolve("pen-human-v1", root).id == "d4rl/pen-human-v1"
    with pytest.raises(RldsError, match=f"recipe screens {failed}: NameError"):
        resolve("screens/one", root)


def test_the_readers_of_hdf5_are_found_under_their_old_names() -> None:
    script = "from datasets_cli.recipe import open_hdf5, read_rows, fastest_zlib"
    names: dict[str, object] = {}
    with pytest.warns(DeprecationWarning, match="open_hdf5 and read_rows from") as told:
        exec(compile(script, "an old recipe", "exec"), names)
    assert len(told) == 1
    assert names["open_hdf5"] is hdf5.open_hdf5
    assert names["read_rows"] is hdf5.read_rows
    assert names["fastest_zlib"] is gzip.fastest_zlib


def test_each_file_is_told() -> None:
    for filename in ("first.py", "second.py"):
        with pytest.warns(DeprecationWarning, match="CatalogueEntry for Row") as told:
            exec(compile("from datasets_cli.recipe import Row, CUT", filename, "exec"), {})
        assert [warning.filename for warning in told] == [filename]


def test_the_new_names_are_told_nothing_and_an_unknown_name_is_none() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        entry = CatalogueEntry("one")
        assert Source("one", {}, entry).entry is entry
        frames = DeferredFrames(("observation",), (2, 2), [], lambda part: iter(()))  # type: ignore[arg-type, return-value]
        made = Recipe(
            *("test", 1, "", "", "", ""),
            datasets=lambda web: [entry],
            resources=lambda name, web: [],
            blocks=lambda source: iter(()),
            deferred_frames=lambda source: frames,
        )
        assert made.deferred_frames(Source("one", {})) is frames
    with pytest.raises(AttributeError, match=r"'datasets_cli\.recipe' has no attribute 'Spam'"):
        recipe.Spam  # noqa: B018


def test_the_command_line_shows_the_new_words_once_and_not_in_a_quiet_run(tmp_path: Path) -> None:
    (tmp_path / "lunar.py").write_text(LUNAR)
    command = [sys.executable, "-m", "datasets_cli", "list", "lunar"]
    environment = {**os.environ, "RLDS_RECIPES": str(tmp_path)}
    told, quiet = (
        subprocess.run(
            [*command, *more], env=environment, capture_output=True, text=True, check=True
        )
        for more in ([], ["-q"])
    )
    assert told.stderr.count("TRAJECTORY_END for CUT") == 1 and "lunar.py:" in told.stderr
    assert quiet.stdout.split() == ["lunar/easy-v1", "lunar/hard-v1"] and quiet.stderr == ""
