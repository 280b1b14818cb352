"""How the rooms hang together: their arrows, and what has the same name in two of them."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from source import PROJECT, comment_lines, shown, source_files

PACKAGE = "datasets_cli"


def figures() -> dict[str, Any]:
    """Return the figures of the checkout that this Python has installed."""
    files = {path: path.read_text(encoding="utf-8") for path in source_files()}
    trees = {path: ast.parse(text) for path, text in files.items()}
    rooms = {path: room_of(path) for path in trees}
    arrows = {
        (room, other)
        for path, room in rooms.items()
        for other in imported_rooms(trees[path], {*rooms.values()})
        if other != room and path.name != "__init__.py"
    }
    of_replay = [arrow for arrow in arrows if all(room.startswith("replay/") for room in arrow)]
    by_folder: dict[Path, int] = defaultdict(int)
    for path in files:
        by_folder[path.parent] += 1
    return {
        "lines without comments": sum(
            text.count("\n") - comment_lines(text) for text in files.values()
        ),
        "rooms": len({*rooms.values()}),
        "arrows": len(arrows),
        "rooms of replay": len({room for room in rooms.values() if room.startswith("replay/")}),
        "arrows of replay": len(of_replay),
        "Any in replay": sum(
            isinstance(node, ast.Name) and node.id == "Any"
            for path, tree in trees.items()
            if rooms[path].startswith("replay")
            for node in ast.walk(tree)
        ),
        "folders above 16 files": {
            shown(folder): count for folder, count in by_folder.items() if count > 16
        },
        "names of several classes": several(trees),
        "classes from ReplayBuffer down": depth(trees, "ReplayBuffer"),
        "functions with a local called found": sum(
            isinstance(node, ast.FunctionDef)
            and any(
                isinstance(each, ast.Name)
                and each.id == "found"
                and isinstance(each.ctx, ast.Store)
                for each in ast.walk(node)
            )
            for tree in trees.values()
            for node in ast.walk(tree)
        ),
    }


def room_of(path: Path) -> str:
    """Return the folder of a module; of one beside folders the module itself."""
    parts = path.relative_to(PROJECT).with_suffix("").parts
    parts = parts[1:] if parts[0] == PACKAGE else parts
    return "/".join(parts[:-1] or parts)


def imported_rooms(tree: ast.Module, rooms: set[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{PACKAGE}."):
            place = (node.module or "").removeprefix(f"{PACKAGE}.").replace(".", "/")
            yield place if place in rooms else place.rpartition("/")[0]


def several(trees: dict[Path, ast.Module]) -> dict[str, list[str]]:
    """Return the classes and capitalised aliases of which there are several of one name."""
    places: dict[str, set[str]] = defaultdict(set)
    for path, tree in trees.items():
        for name in names_of(tree):
            places[name].add(shown(path))
    return {name: sorted(files) for name, files in sorted(places.items()) if len(files) > 1}


def names_of(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            is_variable = "TypeVar" in ast.unparse(node.value) or "ParamSpec" in ast.unparse(
                node.value
            )
            if re.fullmatch(r"[A-Z]\w*[a-z]\w*", name) and not is_variable:
                yield name


def depth(trees: dict[Path, ast.Module], root: str) -> int:
    """Return the classes on the longest way from one down to a subclass."""
    below: dict[str, set[str]] = defaultdict(set)
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                for base in node.bases:
                    below[ast.unparse(base).rpartition(".")[2]].add(node.name)
    return 1 + max((depth_of(below, name) for name in below[root]), default=0)


def depth_of(below: dict[str, set[str]], name: str) -> int:
    return 1 + max((depth_of(below, each) for each in below[name] if each != name), default=0)
