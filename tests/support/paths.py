"""Where the project's files are."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).parents[2]
TEST_DATA = PROJECT / "tests" / "data"
DEMO_DATA = PROJECT / "recipes" / "demo" / "data"


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file, which several tests walk."""
    return ast.parse(path.read_text(encoding="utf-8"))
