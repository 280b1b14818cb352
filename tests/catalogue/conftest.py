"""A cache root that is empty, and a folder of recipes of a user's own."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from datasets_cli.catalogue import entries
from datasets_cli.store.cache_root import CacheRoot


@pytest.fixture
def root(tmp_path: Path) -> CacheRoot:
    return CacheRoot(tmp_path / "root")


@pytest.fixture
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of recipes, as $RLDS_RECIPES names one to a new process."""
    package = importlib.import_module("datasets_cli.recipes")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    clear()
    yield tmp_path
    clear()
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def clear() -> None:
    """Look for recipes again."""
    entries.families.cache_clear()
    entries.load_recipe.cache_clear()
