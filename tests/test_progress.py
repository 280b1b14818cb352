"""Progress: of a user's own, in lines for programs, and as a bar; see also cli/test_screens."""

from __future__ import annotations

import functools
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import datasets_cli
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.core.progress import File, Note, Rows
from datasets_cli.core.progress_display import Bars, JsonLines, PlainLines
from tests.support.d4rl_files import save, steps
from tests.support.events import Events
from tests.support.origin import Origin
from tests.support.terminals import in_terminal

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


MB = 1_000_000


ID = "d4rl/x"


def expect(bars: Bars, **sizes: int | None) -> None:
    for name, size in sizes.items():
        bars(File(ID, name, None, size))


class Clock:
    """The time that a bar sees."""

    now = 0.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("tqdm.std.time", lambda: clock.now)
    monkeypatch.setenv("COLUMNS", "120")
    return clock


@pytest.fixture
def drawn(capsys: Capture) -> Callable[[], list[str]]:
    """Every line that was drawn since the last call."""
    return lambda: [line for line in re.split(r"[\r\n]+", capsys.readouterr().err) if line.strip()]


@pytest.mark.parametrize("columns", [20, 60, 120])
def test_the_bar_has_all_files_and_fits(
    columns: int,
    clock: Clock,
    drawn: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    with Bars() as bars:
        expect(bars, a=MB, b=3 * MB)
        bars(File(ID, "a", 0, MB))
        for clock.now, name, done, total in [(1.0, "a", MB, MB), (1.1, "b", 0, 3 * MB)]:
            bars(File(ID, name, done, total))
        clock.now = 2.0
        bars(File(ID, "b", MB, 3 * MB))
        last = drawn()[-1]
        assert len(last) < columns
    for words in (" 50%", "2.00M/4.00M", "[00:02<00:02", "1.00MB/s", "file 2 of 2, b"):
        assert words in last or (columns < 80 and words != " 50%")
    assert columns < 40 or "2.00M/4.00M" in last


def test_several_datasets_share_one_bar(clock: Clock, drawn: Callable[[], list[str]]) -> None:
    with Bars() as bars:
        for id, size in {"d4rl/a": MB, "d4rl/b": 2 * MB, "d4rl/c": MB}.items():
            bars(File(id, "", None, size))
        for done in (None, MB):
            bars(File("d4rl/a", "a.hdf5", done, MB))
        first = drawn()[-1]
        for id in ("d4rl/a", "d4rl/b"):  # b could not be installed: its bytes no longer count
            bars(File(id, "", None, 0))
        for name, done in (("1.hdf5", None), ("2.hdf5", None), ("1.hdf5", MB // 2)):
            bars(File("d4rl/c", name, done, MB // 2))
        second = drawn()[-1]
    assert " 25%" in first and "1.00M/4.00M" in first and "d4rl/a a.hdf5" in first
    assert " 75%" in second and "1.50M/2.00M" in second and "file 3 of 3" in second


def test_bars_of_datasets_at_a_time_have_all_bytes_and_all_rows(
    clock: Clock, drawn: Callable[[], list[str]]
) -> None:
    with Bars() as bars:
        for name in ("", "file"):
            for id, size in {"a": 10, "b": 20}.items():
                bars(File(id, name, None, size))
        bars(File("a", "file", 10, 10))
        clock.now = 1.0
        bars(Rows("a", 500))
        bars(File("b", "file", 20, 20))
        bars(Rows("b", 250))
        clock.now = 2.0
        bars(Rows("b", 1_250))
    lines = drawn()
    (beside,) = [line for line in lines if "500 transitions written" in line]
    assert "10.0/30.0" in beside
    assert "transitions written: 1.75k [00:01, 1.00k/s]" in lines[-1]


def test_complete_rows_do_not_count_with_those_of_the_next_dataset(
    clock: Clock, drawn: Callable[[], list[str]]
) -> None:
    with Bars("transitions compared") as bars:
        for clock.now, (id, done, total) in enumerate(
            [("a", 0, 100), ("a", 100, 100), ("b", 0, 40), ("b", 10, 40)]
        ):
            bars(Rows(id, done, total))
        last = drawn()[-1]
    assert "transitions compared:  25%" in last and "10.0/40.0" in last


def test_what_an_earlier_run_fetched_has_no_speed(
    clock: Clock, drawn: Callable[[], list[str]]
) -> None:
    with Bars() as bars:
        expect(bars, a=MB, b=MB, c=MB)
        bars(File(ID, "a", MB, MB))
        bars(File(ID, "b", MB // 2, MB))
        for clock.now, done in [(0.0, 0), (1.0, 100_000)]:
            bars(File(ID, "c", done, MB))
        last = drawn()[-1]
    assert "1.60M/3.00M" in last and "100kB/s" in last and "<00:14" in last


def test_a_file_of_unknown_size_gives_bytes_without_a_share(
    clock: Clock, drawn: Callable[[], list[str]]
) -> None:
    with Bars() as bars:
        expect(bars, a=None, b=10)
        bars(File(ID, "a", 70_000, None))
        clock.now = 1.0
        bars(File(ID, "a", 90_000, None))
        assert drawn()[-1].strip() == "90.0kB [00:01, 20.0kB/s, file 1 of 2, a]"


def test_the_bar_has_rows_speed_and_remaining_time(
    clock: Clock, drawn: Callable[[], list[str]]
) -> None:
    with Bars() as bars:
        bars(Rows("derived/out", 2_000, 10_000))
        clock.now = 2.0
        bars(Rows("derived/out", 6_000, 10_000))
        last = drawn()[-1]
    assert "transitions written:  60%" in last and "6.00k/10.0k [00:02<00:02, 2.00k/s]" in last


SCRIPT = """
import multiprocessing, os, sys, threading
from datasets_cli.core.progress import File, Note, Rows
from datasets_cli.core.progress_display import displayed
sys.stderr.reconfigure(encoding=os.environ.get("ENCODING"), errors="backslashreplace")
with displayed(None) as progress:
    progress(File("demo/a", "file", 50, 100))
    progress(File("demo/a", "file", 100, 100))
    progress(Note("a note"))
    progress(Rows("demo/a", 5))
print(threading.active_count(), multiprocessing.get_start_method(allow_none=True))
"""

LINES = [
    "demo/a: fetching file (100 B, 50 B of it here)",
    "demo/a: fetched file (100 B) in 0.0 s",
    "a note",
]


@pytest.mark.parametrize("terminal", ["xterm", "dumb"])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_what_is_drawn_is_what_the_terminal_can_show(terminal: str, encoding: str) -> None:
    screen = in_terminal(program=SCRIPT, columns=80, TERM=terminal, ENCODING=encoding)
    if terminal == "dumb":
        assert screen.left == [*LINES, "1 None"], screen.raw
        assert "%" not in screen.raw and "\x1b" not in screen.raw
    else:
        assert screen.left == ["a note", "1 None"], screen.raw
        assert "\\u" not in screen.raw
        assert ("#####" if encoding == "ascii" else "\u2588" * 5) in screen.raw


def test_without_a_terminal_there_are_lines_and_no_bar() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr.splitlines()) == ("1 None\n", LINES)
