"""How large things may be and what they are called, so that a reader keeps them in mind."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import PROJECT, parsed

MOST_BODY_LINES = 40
FEWEST_LINES, MOST_LINES = 60, 700
REPLAY_HALF = ("replay", "experience", "torchrl", "trainer", "specs", "environments")
"""Without small files, except for ``NAMES_ONLY``."""
NAMES_ONLY = tuple(
    f"datasets_cli/torchrl/{each}"
    for each in ("collectors/", "data/", "envs/", "trainers/", "names.py")
)


def long_functions(path: Path) -> Iterator[str]:
    """Yield the functions whose bodies, without their docstrings, have too many lines."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1 if ast.get_docstring(node) else 0 :] or node.body
            lines = (body[-1].end_lineno or 0) - body[0].lineno + 1
            if lines > MOST_BODY_LINES:
                yield f"{path.relative_to(PROJECT)}: {node.name} has {lines} lines"


def source_files() -> list[Path]:
    roots = (PROJECT / "datasets_cli", PROJECT / "recipes")
    return sorted(path for root in roots for path in root.rglob("*.py"))


def lines_of_files() -> dict[str, int]:
    return {
        str(path.relative_to(PROJECT)): path.read_text(encoding="utf-8").count("\n")
        for path in source_files()
    }


def test_no_body_of_a_function_is_long() -> None:
    files = source_files()
    long = [line for path in files for line in long_functions(path)]
    assert len(files) > 300
    assert not long, "\n".join(long)


def test_no_two_classes_have_one_name() -> None:
    trees = [parsed(path) for path in source_files()]
    names = Counter(
        node.name
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert len(names) > 300
    assert not [name for name, count in names.items() if count > 1]


def test_no_file_has_more_than_seven_hundred_lines() -> None:
    assert not {path: lines for path, lines in lines_of_files().items() if lines > MOST_LINES}


def test_the_replay_half_has_no_small_file_but_modules_of_names() -> None:
    small = {path for path, lines in lines_of_files().items() if lines < FEWEST_LINES}
    of_replay_half = {
        path
        for path in small
        if Path(path).parts[1] in REPLAY_HALF
        and not path.startswith(NAMES_ONLY)
        and Path(path).name != "__init__.py"
    }
    assert not of_replay_half


def test_no_folder_has_more_than_sixteen_files() -> None:
    sizes = Counter(path.parent for path in source_files())
    long = {folder.name for folder, size in sizes.items() if size > 16}
    assert long == {"verbs"}  # one file a verb


def test_the_files_that_architecture_names_for_a_task_exist() -> None:
    text = (PROJECT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = text.partition("\n| you want to |")[2].partition("\n## ")[0]
    missing = []
    for row in table.splitlines():
        task, _, files = row.strip("| ").partition(" | ")
        assert not files or files.startswith(("`", "---")), f"the file comes first: {task}"
        folder = PROJECT
        for name in re.findall(r"`([\w./-]+(?:/|\.(?:py|tsv|js|md)))`", files):
            places = [place / name for place in (PROJECT / "datasets_cli", PROJECT, folder)]
            found = next((path for path in places if path.exists()), None)
            missing += [] if found else [f"{task}: {name}"]
            folder = found.parent if found and found.is_file() else found or folder
    assert not missing, "\n".join(missing)
