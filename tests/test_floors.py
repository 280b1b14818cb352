"""Imports go down the floors of docs/architecture.md, and nothing heavy stands at the door."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from tests.support import public_names
from tests.support.interpreters import imported_by, imported_by_commands
from tests.support.paths import PROJECT, parsed

# From the ground up. A room is a folder, or a module that stands beside folders.
FLOORS = [
    ["errors", "lazy_names", "version"],
    ["core", "results", "torchrl.keywords"],
    ["formats.limits", "parallel"],
    ["config"],
    ["sources"],
    ["schema"],
    ["formats", "recipe", "replay.arguments", "store.layouts"],
    ["store", "replay.state_file"],
    ["audit.rules", "specs", "replay.trajectories"],
    ["audit", "environments", "replay.storages"],
    ["catalogue", "environments.collectors", "replay.samplers", "replay.transforms"],
    ["install", "replay.batches", "replay.queries"],
    ["preprocessing", "replay.writing"],
    ["replay.checkpoint"],
    ["exchange", "replay.buffer"],
    ["environments.record", "replay.goals", "replay.mixing"],
    ["experience", "replay.loaders", "trainer"],
    ["project", "torchrl"],
    [
        *("torchrl.collectors", "torchrl.data", "torchrl.data.datasets"),
        *("torchrl.data.replay_buffers", "torchrl.envs", "torchrl.envs.transforms", "verbs"),
    ],
    ["ui", "cli.parser"],
    ["cli"],
    ["__main__"],
]
HOMES = {name: home.partition(":")[0] for name, home in public_names.HOMES.items()}
FLOOR_OF = {room: number for number, floor in enumerate(FLOORS) for room in floor}


def room_of(module: str) -> str:
    """Return the room of a module, given without its ``datasets_cli.``."""
    folder = module.rpartition(".")[0]
    room = next((name for name in (module, folder) if name in FLOOR_OF), None)
    assert room, f"{module} stands on no floor: add its folder to FLOORS and architecture.md"
    return room


@cache
def modules() -> dict[str, Path]:
    package = PROJECT / "datasets_cli"
    paths = {path.relative_to(package).with_suffix(""): path for path in package.rglob("*.py")}
    names = {".".join(path.parts): file for path, file in paths.items()}
    return {name: file for name, file in names.items() if not name.endswith("__init__")}


@cache
def packages() -> set[str]:
    files = (PROJECT / "datasets_cli").rglob("__init__.py")
    return {".".join(file.parent.relative_to(PROJECT).parts) for file in files}


@cache
def imports_of(path: Path) -> set[str]:
    """Return the modules and rooms that a file imports.

    A public name counts as an import of the module that defines it, wherever it is imported from.
    """
    found = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [alias.name for alias in node.names]
            found |= {node.module} | {f"{node.module}.{name}" for name in names}
            if node.module in packages() | public_names.TABLES.keys():
                homes = [HOMES[name] for name in names if name in HOMES]
                found |= {f"datasets_cli.{home}" for home in homes}
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    ours = {
        name.removeprefix("datasets_cli.") for name in found if name.startswith("datasets_cli.")
    }
    return ours & (modules().keys() | FLOOR_OF.keys())


def upward_imports() -> list[str]:
    """Return each import of a module that is of neither its own room nor a lower floor."""
    found = []
    for module, file in modules().items():
        room = room_of(module)
        for imported in sorted(imports_of(file)):
            other = room_of(imported)
            if other != room and FLOOR_OF[other] >= FLOOR_OF[room]:
                found.append(f"{module} -> {imported}")
    return found


def test_a_module_imports_from_its_own_room_or_from_lower_floors() -> None:
    upward = upward_imports()
    assert not upward, "\n".join(upward)


def test_an_import_from_a_package_is_one_of_what_it_finds(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        "from datasets_cli import ReplayBuffer, download\n"
        "from datasets_cli.replay import FrameStack\n"
        "from datasets_cli.replay.storages import lists\n"
        "import datasets_cli.torchrl.data\n"
        "import torchrl\n"
    )
    modules = {"replay.buffer.buffer", "verbs.download", "replay.storages.dataset"}
    rooms = {"replay.storages", "torchrl.data"}
    assert imports_of(path) == modules | {"replay.storages.lists"} | rooms


def test_imports_form_no_circle() -> None:
    files = modules()
    graph = {module: imports_of(path) & files.keys() for module, path in files.items()}
    done: set[str] = set()
    while len(done) < len(graph):
        ready = {module for module, needs in graph.items() if module not in done and needs <= done}
        assert ready, f"a circle among {sorted(graph.keys() - done)}"
        done |= ready


def floors_table() -> str:
    """Return the table of docs/architecture.md: each room with the first line of its docstring."""
    rows = ["| floor | room | |", "|---|---|---|"]
    for number, floor in reversed([*enumerate(FLOORS)]):
        for room in floor:
            path = PROJECT / "datasets_cli" / room.replace(".", "/")
            file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            text = ast.get_docstring(parsed(file)) or ""
            about = text.splitlines()[0].replace("``", "`")
            rows.append(f"| {number} | `{room.replace('.', '/')}` | {about} |")
    return "\n".join(rows)


def test_the_table_of_floors_is_these_floors() -> None:
    text = (PROJECT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert floors_table() in text, floors_table()


def test_every_floor_has_rooms_that_exist() -> None:
    assert {room_of(module) for module in modules()} == FLOOR_OF.keys()


def foreign_imports(recipe: Path) -> list[str]:
    """Return what a file of a recipe imports of ours that is not for it, or of another folder."""
    found = []
    for node in ast.walk(parsed(recipe)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if "datasets_cli" in alias.name]
        if isinstance(node, ast.ImportFrom) and node.level != 1:  # 1: from its own folder
            module = "." * node.level + str(node.module)
            taken = module == "datasets_cli.recipe" or module.startswith("datasets_cli.formats.")
            if not taken and module.startswith((".", "datasets_cli")):
                found.append(module)
    return [f"{recipe.parent.name}.{recipe.stem} -> {module}" for module in found]


def test_a_recipe_imports_only_the_recipe_module_formats_and_its_own_folder() -> None:
    files = sorted((PROJECT / "recipes").glob("*/**/*.py"))
    assert len(files) > 30
    foreign = [line for file in files for line in foreign_imports(file)]
    assert not foreign, "\n".join(foreign)


def test_file_formats_know_nothing_of_recipes() -> None:
    for path in (PROJECT / "datasets_cli" / "formats").rglob("*.py"):
        rooms = {room_of(module) for module in imports_of(path)}
        assert rooms <= {
            "core",
            "errors",
            "schema",
            "formats",
            "formats.limits",
        }, path.name


def test_the_catalogue_halves_of_the_recipes_import_nothing_heavy() -> None:
    families = [path.parent.name for path in (PROJECT / "recipes").glob("*/catalogue.py")]
    assert len(families) > 4
    code = (
        "import importlib\n"
        f"for family in {families}:\n"
        "    module = importlib.import_module(f'datasets_cli.recipes.{family}')\n"
        "    importlib.import_module(f'datasets_cli.recipes.{family}.catalogue')\n"
        "    assert len(list(module.RECIPE.datasets(None))) > 3"
    )
    heavy = {"torch", "tensordict", "sklearn", "pandas", "h5py", "numpy", "PIL", "requests"}
    assert not imported_by(code) & heavy


HEAVY = {"torch", "tensordict", "sklearn", "pandas", "h5py", "numpy", "requests", "pydantic"}
HEAVY |= {"rich", "starlette", "uvicorn", "jinja2"}


def test_light_commands_import_nothing_heavy(door: str) -> None:
    light = ("--help", "ui --help", "list", "list --help", f"info {door}", f"path {door}")
    light += ("list --search hopper --filter size>1GB --sort size",)
    assert not imported_by_commands(*light) & {*HEAVY, "multiprocessing", "cloudpickle"}
    # A lock needs the rest of what `delete` imports.
    assert not imported_by_commands(f"delete --yes {door}") & HEAVY


def test_a_conversion_to_ted_and_its_checks_import_no_torch(door_source: str) -> None:
    call = f"download door-human-v0 --no-verify --source {door_source}"
    imported = imported_by_commands(call, "verify", "repair --dry-run")
    assert not imported & {"torch", "tensordict"}


def test_importing_the_package_and_listing_datasets_import_nothing_heavy() -> None:
    code = (
        "import datasets_cli.replay as d; d = datasets_cli; d.dataset_info(d.list_datasets()[0].id)"
    )
    assert not imported_by(f"import datasets_cli; {code}") & {*HEAVY, "typer"}
