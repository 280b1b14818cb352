"""Progress: of a user's own, in lines for programs, and as a bar."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import datasets_cli
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.core.progress import JsonLines, PlainLines, Silent, expect_rows, of_dataset
from tests.support.d4rl_files import save, steps
from tests.support.origin import Origin

IDS = {"d4rl/maze2d-open-v0": "open", "d4rl/maze2d-umaze-v0": "umaze"}
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """The bytes of two datasets' files, which a server of this machine has."""
    found = {}
    with Origin() as origin:
        for id, maze in IDS.items():
            path = tmp_path / f"maze2d-{maze}-sparse.hdf5"
            save(path, steps(path, (4, 2), num_steps=300))
            origin.put(f"maze2d/{path.name}", path.read_bytes())
            found[f"{id} {path.name}"] = path.stat().st_size
        berkeley = "http://rail.eecs.berkeley.edu/datasets/offline_rl/"
        monkeypatch.setenv("RLDS_MIRRORS", f"{berkeley}={origin.url}")
        yield found


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
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
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


def test_a_rate_over_too_short_a_time_is_not_told(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with JsonLines().of_dataset("mine/a") as lines:
        for now, rows in [(5.0, 20_076), (5.05, 20_077)]:  # noqa: B007
            lines.writing(rows)
    events = [*map(json.loads, capsys.readouterr().err.splitlines())]
    assert [each["rows"] for each in events] == [20_076, 20_077]
    assert {each["rows_per_second"] for each in events} == {None}


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_download_tells_programs_of_files_and_rows(
    workers: str, sizes: dict[str, int], capsys: Capture
) -> None:
    assert main(["--json", "download", *IDS, "--no-verify", "--workers", workers]) == 0
    output = capsys.readouterr()
    events = [*map(json.loads, output.err.splitlines())]
    files = [event for event in events if event["event"] == "file"]
    for name, size in sizes.items():
        of_it = [event for event in files if f"{event['id']} {event['file']}" == name]
        assert [event["bytes"] for event in (of_it[0], of_it[-1])] == [0, size]
        assert of_it[-1]["total"] == size and {"bytes_per_second", "eta_seconds"} <= of_it[0].keys()
    rows = {event["id"]: event["rows"] for event in events if event["event"] == "rows"}
    assert rows == {
        each["id"]: each["num_transitions"] for each in json.loads(output.out)["datasets"]
    }


def test_a_download_without_a_terminal_has_a_line_as_each_file_begins_and_ends(
    sizes: dict[str, int], capsys: Capture
) -> None:
    assert main(["download", *IDS, "--no-verify", "--workers", "0"]) == 0
    lines = capsys.readouterr().err.splitlines()
    for id, name in (text.split() for text in sizes):
        (begins, ends) = [line for line in lines if "fetch" in line and line.startswith(f"{id}: ")]
        assert begins.startswith(f"{id}: fetching {name} (")
        assert re.fullmatch(rf"{id}: fetched {name} \([0-9.]+ kB\) in [0-9.]+ s", ends)


def test_lines_of_a_file_name_what_is_here_and_nothing_twice(capsys: Capture) -> None:
    with of_dataset(PlainLines(), "d4rl/x") as lines:
        for done, total in [(5, None), (7, 10), (10, 10), (10, 10), (0, 10), (10, 10)]:
            lines.fetching("a", done, total)
        lines.fetching("b", 3_000, 3_000)
    begins, ends, again, _, other = capsys.readouterr().err.splitlines()
    assert begins == "d4rl/x: fetching a (size unknown, 5 B of it here)"
    assert ends.startswith("d4rl/x: fetched a (10 B) in ")
    assert again == "d4rl/x: fetching a (10 B)"
    assert other == "d4rl/x: b is here already (3.0 kB)"


def test_a_quiet_run_tells_nothing(sizes: dict[str, int], capsys: Capture) -> None:
    assert main(["-q", "--json", "download", *IDS, "--no-verify", "--workers", "0"]) == 0
    assert capsys.readouterr().err == ""


def test_other_work_on_rows_tells_programs_its_dataset_and_total(
    door: str, capsys: Capture
) -> None:
    for command in (["verify", "--deep"], ["convert", "--layout", "compact"]):
        assert main(["--json", *command, door]) == 0
        *_, last = map(json.loads, capsys.readouterr().err.splitlines())
        assert (last["id"], last["rows"], last["total"]) == (door, 1495, 1495)


def test_programs_are_told_of_an_interrupt_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def interrupt(**_: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(datasets_cli, "list_datasets", interrupt)
    assert main(["--json", "list"]) == 143
    note = json.loads(capsys.readouterr().err)
    assert note["event"] == "note" and note["text"].startswith("Interrupted.")
