"""Progress: of a user's own, in lines for programs, and as a bar."""

from __future__ import annotations

import json
import time

import pytest

import datasets_cli
from datasets_cli.config import Config
from datasets_cli.progress import Silent, expect_rows
from datasets_cli.progress_lines import JsonLines


class Own(Silent):
    def __init__(self) -> None:
        self.rows: list[int] = []

    def writing(self, num_transitions: int) -> None:
        self.rows.append(num_transitions)


def test_rows_written_are_told(door: str, config: Config) -> None:
    own = Own()
    datasets_cli.convert(door, "compact", config=config, progress=own)
    assert own.rows and own.rows == sorted(own.rows) and own.rows[-1] == 1495


def test_lines_for_programs_come_once_a_second_and_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    lines = JsonLines()
    expect_rows(lines, "derived/out", 100, 1100)
    for now, rows in [(0.5, 200), (1.0, 100), (2.0, 300), (2.5, 600), (4.0, 1100)]:  # noqa: B007
        lines.writing(rows)
    lines.note("a worker was killed")
    first, middle, last, note = map(json.loads, capsys.readouterr().err.splitlines())
    assert (first["rows"], first["rows_per_second"], first["eta_seconds"]) == (100, None, None)
    assert middle == {
        "event": "rows", "id": "derived/out", "rows": 300, "total": 1100,
        "rows_per_second": 100.0, "eta_seconds": 8.0,
    }  # fmt: skip
    assert (last["rows"], last["rows_per_second"], last["eta_seconds"]) == (1100, 250.0, 0.0)
    assert note == {"event": "note", "text": "a worker was killed"}
