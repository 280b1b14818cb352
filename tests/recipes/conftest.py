"""Publishers of the tests' own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.openml_files import OpenML
from tests.support.origin import Origin


@pytest.fixture
def site() -> Iterator[OpenML]:
    with Origin() as origin:
        yield OpenML(origin)


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> Iterator[Origin]:
    with Origin() as origin:
        monkeypatch.setattr("datasets_cli.sources.buckets.HOST", origin.url)
        yield origin
