"""How large things may be and what they are called, so that a reader keeps them in mind."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import PROJECT

MOST_LINES = 40


def long_functions(path: Path) -> Iterator[str]:
    """Yield the functions whose bodies, without their docstrings, have too many lines."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1 if ast.get_docstring(node) else 0 :] or node.body
            lines = (body[-1].end_lineno or 0) - body[0].lineno + 1
            if lines > MOST_LINES:
                yield f"{path.relative_to(PROJECT)}: {node.name} has {lines} lines"


def source_files() -> list[Path]:
    roots = (PROJECT / "datasets_cli", PROJECT / "recipes")
    return sorted(path for root in roots for path in root.rglob("*.py"))


def test_no_body_of_a_function_is_long() -> None:
    files = source_files()
    long = [line for path in files for line in long_functions(path)]
    assert len(files) > 400
    assert not long, "\n".join(long)


def test_no_two_classes_have_one_name() -> None:
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in source_files()]
    names = Counter(
        node.name
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert len(names) > 300
    assert not [name for name, count in names.items() if count > 1]


def test_no_folder_has_more_than_sixteen_files() -> None:
    sizes = Counter(path.parent for path in source_files())
    assert not {folder: size for folder, size in sizes.items() if size > 16}
