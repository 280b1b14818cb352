"""How large things may be, so that a reader keeps them in mind."""

from __future__ import annotations

import ast
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


def test_no_body_of_a_function_is_long() -> None:
    files = [
        path for root in ("datasets_cli", "recipes") for path in (PROJECT / root).rglob("*.py")
    ]
    found = [line for path in sorted(files) for line in long_functions(path)]
    assert len(files) > 400
    assert not found, "\n".join(found)
