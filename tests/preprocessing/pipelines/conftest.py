"""Chunks of few rows, so that there are several."""

from __future__ import annotations

import pytest

from datasets_cli.preprocessing import origin


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origin, "rows_per_block", lambda row_bytes: 100)
