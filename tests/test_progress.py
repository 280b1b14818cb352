"""Progress: of a user's own, in lines for programs, and as a bar."""

from __future__ import annotations

import functools
import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import datasets_cli
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.core.progress import File, Note, Rows
from datasets_cli.core.progress_display import JsonLines, PlainLines
from tests.support.d4rl_files import save, steps
from tests.support.events import Events
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


def test_rows_written_are_reported(door: str, config: Config) -> None:
    events = Events()
    datasets_cli.convert(door, "compact", config=config, progress=events)
    assert events.rows == sorted(events.rows)
    assert (events.all[0], events.all[-1]) == (Rows(door, 0, 1495), Rows(door, 1495, 1495))


@pytest.mark.parametrize("workers", [0, 2])
def test_one_function_receives_the_files_rows_and_notes_of_several_datasets(
    workers: int, sizes: dict[str, int], config: Config
) -> None:
    events = Events()
    call: dict[str, Any] = {"num_workers": workers, "verify": False, "config": config}
    found = datasets_cli.download([*IDS], progress=events, **call).datasets
    for text, size in sizes.items():
        id, name = text.split()
        files = [each for each in events.all if isinstance(each, File) and each.id == id]
        assert [each.done for each in files if each.name == name][:2] == [None, 0]
        assert (files[-2], files[-1]) == (File(id, name, size, size), File(id, "", None, 0))
    last = {each.id: each for each in events.all if isinstance(each, Rows)}
    assert last == {
        each.id: Rows(each.id, each.num_transitions, each.num_transitions) for each in found
    }


def test_lines_for_programs_come_once_a_second_and_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    lines = JsonLines()
    for now, rows in [(0.0, 100), (0.5, 200), (2.0, 300), (2.5, 600), (4.0, 1100)]:  # noqa: B007
        lines(Rows("derived/out", rows, 1100))
    lines(Note("a worker was killed"))
    first, middle, last, note = map(json.loads, capsys.readouterr().err.splitlines())
    assert (first["rows"], first["rows_per_second"], first["eta_seconds"]) == (100, None, None)
    assert middle == {
        "event": "rows", "id": "derived/out", "rows": 300, "total": 1100,
        "rows_per_second": 100.0, "eta_seconds": 8.0,
    }  # fmt: skip
    assert (last["rows"], last["rows_per_second"], last["eta_seconds"]) == (1100, 250.0, 0.0)
    assert note == {"event": "note", "text": "a worker was killed"}


def test_a_rate_over_too_short_a_time_is_not_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    lines = JsonLines()
    for now, rows, total in [(5.0, 20_076, None), (5.05, 20_077, 20_077)]:  # noqa: B007
        lines(Rows("mine/a", rows, total))
    events = [*map(json.loads, capsys.readouterr().err.splitlines())]
    assert [each["rows"] for each in events] == [20_076, 20_077]
    assert {each["rows_per_second"] for each in events} == {None}


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_download_reports_files_and_rows_to_programs(
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
    lines = PlainLines()
    for done, total in [(None, 10), (5, None), (7, 10), (10, 10), (10, 10), (0, 10), (10, 10)]:
        lines(File("d4rl/x", "a", done, total))
    lines(File("d4rl/x", "b", 3_000, 3_000))
    begins, ends, again, _, other = capsys.readouterr().err.splitlines()
    assert begins == "d4rl/x: fetching a (size unknown, 5 B of it here)"
    assert ends.startswith("d4rl/x: fetched a (10 B) in ")
    assert again == "d4rl/x: fetching a (10 B)"
    assert other == "d4rl/x: b is here already (3.0 kB)"


def test_a_quiet_run_reports_nothing(sizes: dict[str, int], capsys: Capture) -> None:
    assert main(["-q", "--json", "download", *IDS, "--no-verify", "--workers", "0"]) == 0
    assert capsys.readouterr().err == ""


def test_other_work_on_rows_reports_its_dataset_and_total_to_programs(
    door: str, capsys: Capture
) -> None:
    for command in (["verify", "--deep"], ["convert", "--layout", "compact"]):
        assert main(["--json", *command, door]) == 0
        *_, last = map(json.loads, capsys.readouterr().err.splitlines())
        assert (last["id"], last["rows"], last["total"]) == (door, 1495, 1495)


def test_programs_read_of_an_interrupt_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    @functools.wraps(datasets_cli.list_datasets)  # the command is built from what it takes
    def interrupt(**_: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(datasets_cli, "list_datasets", interrupt)
    assert main(["--json", "list"]) == 143
    note = json.loads(capsys.readouterr().err)
    assert note["event"] == "note" and note["text"].startswith("Interrupted.")
