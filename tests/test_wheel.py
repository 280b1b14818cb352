"""What a wheel has inside: every file of the checkout, and the same datasets."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import PROJECT

BUILD = "from setuptools import setup; setup()"
LIST = """
import sys
sys.path[:0] = {paths}
import datasets_cli
from datasets_cli.cli.main import main
assert datasets_cli.__file__.startswith({root!r}), datasets_cli.__file__
main(["list", "--json"])
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the wheel would unpack to, made by setuptools from pyproject.toml."""
    folder = tmp_path_factory.mktemp("wheel")
    (folder / "info").mkdir()
    commands = [
        "egg_info",
        "--egg-base",
        folder / "info",
        "build_py",
        "--build-lib",
        folder / "lib",
    ]
    subprocess.run([sys.executable, "-c", BUILD, *commands], cwd=PROJECT, check=True)
    return folder / "lib"


def files_below(folder: Path) -> set[str]:
    paths = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {path.relative_to(folder).as_posix() for path in paths}


def listed(root: Path, paths: list[str]) -> list[str]:
    # Without site, whose .pth files would lead to the checkout.
    script = LIST.format(paths=paths, root=str(root))
    done = subprocess.run(
        [sys.executable, "-S", "-c", script], capture_output=True, text=True, check=True
    )
    return [entry["id"] for entry in json.loads(done.stdout)]


def test_the_wheel_has_every_file_and_no_other(installed: Path) -> None:
    recipes = {f"recipes/{name}" for name in files_below(PROJECT / "recipes")}
    assert files_below(installed / "datasets_cli") == recipes | files_below(
        PROJECT / "datasets_cli"
    )


def test_from_the_wheel_rlds_list_prints_the_checkouts_ids(installed: Path) -> None:
    others = [path for path in sys.path if path and Path(path) != PROJECT]
    ids = listed(installed, [str(installed), *others])
    done = subprocess.run(
        [sys.executable, "-m", "datasets_cli.cli.main", "list", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    checkout = [entry["id"] for entry in json.loads(done.stdout)]
    assert ids == checkout
    families = {path.parent.name for path in (PROJECT / "recipes").glob("*/catalogue.py")}
    assert {id.partition("/")[0] for id in ids} == families
