"""Publishers of the tests' own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from datasets_cli.config import Config
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.store.dataset import Dataset, open_dataset
from tests.support import minari_files
from tests.support.openml_files import OpenML
from tests.support.origin import Origin


class Install(Protocol):
    """Installs a folder in Minari's format; other families' tests have one of their own."""

    def __call__(self, folder: Path, name: str = ..., layout: str | None = ...) -> Dataset:
        """Return the dataset, opened with its text."""


@pytest.fixture
def install(config: Config) -> Install:
    def run(folder: Path, name: str = minari_files.NAME, layout: str | None = None) -> Dataset:
        options = InstallOptions(layout=layout, source=str(folder))
        return open_dataset(install_dataset(f"minari/{name}", config, options).path, text=True)

    return run


@pytest.fixture
def site() -> Iterator[OpenML]:
    with Origin() as origin:
        yield OpenML(origin)


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> Iterator[Origin]:
    with Origin() as origin:
        monkeypatch.setattr("datasets_cli.sources.buckets.HOST", origin.url)
        yield origin
