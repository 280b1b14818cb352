"""What is installed, and what a wheel has: every file of the checkout, and the same datasets."""

from __future__ import annotations

import ast
import json
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, TypeGuard

import pytest
import yaml

import datasets_cli
import datasets_cli.replay
from datasets_cli.version import __version__
from tests.support.paths import PROJECT, parsed

PYPROJECT: dict[str, Any] = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
MODULE_OF = {"google-crc32c": "google_crc32c", "Pillow": "PIL", "scikit-learn": "sklearn"}
"""The module of each distribution that is not called like it."""

NOT_IMPORTED = {}


def distributions(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=!~; ]", requirement)[0] for requirement in requirements}


def is_call(node: ast.AST, name: str) -> TypeGuard[ast.Call]:
    is_named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    return is_named and node.func.id == name


def imported(folders: tuple[str, ...] = ("datasets_cli", "recipes")) -> set[str]:
    """Return the modules that folders import, or ask for by ``find_spec``; those of the package."""
    found: set[str] = set()
    for folder in folders:
        for path in (PROJECT / folder).rglob("*.py"):
            for node in ast.walk(parsed(path)):
                if isinstance(node, ast.Import):
                    found |= {alias.name for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and not node.level:
                    found.add(node.module or "")
                elif is_call(node, "import_optional"):
                    found |= {ast.literal_eval(node.args[0])}
                elif is_call(node, "find_spec"):
                    found |= {each.value for each in node.args if isinstance(each, ast.Constant)}
    return {name.partition(".")[0] for name in found}


def test_every_requirement_is_imported_and_every_import_is_required() -> None:
    project = PYPROJECT["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    required = distributions(project["dependencies"])
    for requirements in extras.values():
        required |= distributions(requirements)
    modules = {MODULE_OF.get(name, name) for name in required - NOT_IMPORTED.keys()}
    assert modules == imported() - sys.stdlib_module_names - {"datasets_cli"}
    assert NOT_IMPORTED.keys() <= required
    assert not imported() & NOT_IMPORTED.keys(), "imported by now: no exception any more"
    peers = distributions(PYPROJECT["dependency-groups"]["bench"])
    assert peers <= imported(("benchmarks",)), "benchmarks do not need it"


def test_no_torch_is_taken_whose_load_runs_code_of_a_file() -> None:
    # CVE-2025-32434: torch.load(weights_only=True), by which a trainer reads its file.
    (torch,) = (each for each in PYPROJECT["project"]["dependencies"] if each[:5] == "torch")
    assert tuple(map(int, torch.removeprefix("torch>=").split("."))) >= (2, 6)


def test_every_folder_with_code_is_in_the_package_list() -> None:
    folders = {
        ".".join(path.parent.relative_to(PROJECT).parts)
        for path in (PROJECT / "datasets_cli").rglob("__init__.py")
    }
    recipes = {
        ".".join(("datasets_cli", *path.parent.relative_to(PROJECT).parts))
        for path in (PROJECT / "recipes").rglob("__init__.py")
    }
    listed = set(PYPROJECT["tool"]["setuptools"]["packages"])
    assert listed == folders | recipes


def test_every_file_of_the_package_is_in_the_repository() -> None:
    if not (PROJECT / ".git").exists():
        pytest.skip("this is no git checkout")
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    )
    known = set(listed.stdout.split("\n"))
    for folder in ("datasets_cli", "recipes"):
        for path in (PROJECT / folder).rglob("*"):
            if path.is_file() and path.suffix != ".pyc" and ".egg-info" not in str(path):
                assert path.relative_to(PROJECT).as_posix() in known, "ignored by git"


def test_the_replay_librarys_names_stand_in_its_room_too() -> None:
    names = dir(datasets_cli.replay)
    assert {"ReplayBuffer", "ListStorage", "Compose", "split_trajectories"} <= set(names)
    everything: dict[str, object] = {}
    exec("from datasets_cli.replay import *", everything)
    assert everything.keys() - {"__builtins__"} == set(names)
    assert not hasattr(datasets_cli.replay, "ExperienceReplay")


def test_the_demo_data_is_small_and_names_its_origin() -> None:
    data = PROJECT / "recipes" / "demo" / "data"
    assert sum(path.stat().st_size for path in data.rglob("*") if path.is_file()) < 3_000_000
    origin = (data / "ORIGIN.md").read_text(encoding="utf-8")
    for path in data.glob("*/*"):
        assert path.parent.name in origin


def test_only_tests_install_test_tools() -> None:
    def recipe(*words: str) -> str:
        call = ["make", "--always-make", "--dry-run", *words]
        return subprocess.run(call, cwd=PROJECT, capture_output=True, text=True, check=True).stdout

    assert "pip install" in recipe("demo") and "--group" not in recipe("demo")
    assert "--group dev" in recipe("test")
    assert "/opt/python3.13 -m venv .venv-3.13\n" in recipe("test", "PYTHON=/opt/python3.13")


def test_uv_and_pip_have_the_same_constraints() -> None:
    lines = (PROJECT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = [line for line in lines if not line.startswith("#")]
    assert PYPROJECT["tool"]["uv"]["constraint-dependencies"] == pinned


def yaml_of(path: str) -> Any:
    return yaml.safe_load((PROJECT / path).read_text(encoding="utf-8"))


@pytest.mark.parametrize("form", ["bug", "dataset"])
def test_an_issue_form_asks_for_the_report_on_the_program(form: str) -> None:
    fields = {
        each.get("id"): each for each in yaml_of(f".github/ISSUE_TEMPLATE/{form}.yml")["body"]
    }
    assert "rlds env --json" in fields["env"]["attributes"]["label"]
    assert fields["env"]["validations"] == {"required": True}


def test_a_release_is_built_by_make_and_published_without_a_password() -> None:
    jobs = yaml_of(".github/workflows/release.yml")["jobs"]
    assert {"run": "make release"} in jobs["build"]["steps"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["steps"][-1]["with"] == {"packages-dir": "dist/", "attestations": True}


def test_the_notes_of_a_release_lead_to_the_files_of_its_version() -> None:
    release = runpy.run_path(str(PROJECT / "scripts" / "release"))
    text = release["absolute"]("![a](docs/a.svg) [b](docs/b.md#c) [d](https://e.f) [g](#h)", "1.0")
    places = [f"{release['REPOSITORY']}/{each}" for each in ("raw/v1.0/docs/a.svg", "blob/v1.0")]
    assert text == f"![a]({places[0]}) [b]({places[1]}/docs/b.md#c) [d](https://e.f) [g](#h)"
    assert f"{release['REPOSITORY']}/blob/v{__version__}/docs" in release["notes"](__version__)


def test_the_hooks_before_a_commit_are_tools_of_the_development_group() -> None:
    (repository,) = yaml_of(".pre-commit-config.yaml")["repos"]
    tools = {hook["entry"].partition(" ")[0] for hook in repository["hooks"]}
    assert tools == {".venv/bin/ruff", ".venv/bin/mypy"}


def test_the_citation_names_the_version() -> None:
    text = (PROJECT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {__version__}\n" in text


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
    assert ids == [record.id for record in datasets_cli.list_datasets()]
    families = {path.parent.name for path in (PROJECT / "recipes").glob("*/catalogue.py")}
    assert {id.partition("/")[0] for id in ids} == families
