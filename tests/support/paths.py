"""Where the project's files are."""

from __future__ import annotations

from pathlib import Path

PROJECT = Path(__file__).parents[2]
TEST_DATA = PROJECT / "tests" / "data"
DEMO_DATA = PROJECT / "recipes" / "demo" / "data"
