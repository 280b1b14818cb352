"""What is drawn while files are fetched and rows are written; see also cli/test_screens."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from datasets_cli.core.progress import expect_rows
from datasets_cli.core.progress_bars import Bars, Files, PartOfRun
from tests.support.terminals import in_terminal

Capture = pytest.CaptureFixture[str]
MB = 1_000_000


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


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 120])
def test_the_bar_has_all_files_and_fits(
    columns: int,
    clock: Clock,
    drawn: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    with Bars() as bars:
        bars.expecting({"a": MB, "b": 3 * MB})
        bars.fetching("a", 0, MB)
        for clock.now, name, done, total in [(1.0, "a", MB, MB), (1.1, "b", 0, 3 * MB)]:
            bars.fetching(name, done, total)
        clock.now = 2.0
        bars.fetching("b", MB, 3 * MB)
        last = drawn()[-1]
        assert len(last) < columns
    for words in (" 50%", "2.00M/4.00M", "[00:02<00:02", "1.00MB/s", "file 2 of 2, b"):
        assert words in last or (columns < 80 and words != " 50%")
    assert columns < 40 or "2.00M/4.00M" in last


def test_several_datasets_share_one_bar(clock: Clock, drawn: Callable[[], list[str]]) -> None:
    with Bars() as bars:
        bars.expecting({"d4rl/a": MB, "d4rl/b": 2 * MB, "d4rl/c": MB})
        with PartOfRun("d4rl/a", bars) as part:
            part.expecting({"a.hdf5": MB})
            part.fetching("a.hdf5", MB, MB)
        first = drawn()[-1]
        with PartOfRun("d4rl/b", bars):
            pass  # it could not be installed: its bytes no longer count
        with PartOfRun("d4rl/c", bars) as part:
            part.expecting({"1.hdf5": MB // 2, "2.hdf5": MB // 2})
            part.fetching("1.hdf5", MB // 2, MB // 2)
            second = drawn()[-1]
    assert " 25%" in first and "1.00M/4.00M" in first and "d4rl/a a.hdf5" in first
    assert " 75%" in second and "1.50M/2.00M" in second and "file 3 of 3" in second


def test_bars_of_datasets_at_a_time_have_all_bytes_and_all_rows(
    clock: Clock, drawn: Callable[[], list[str]]
) -> None:
    with Bars() as bars:
        bars.expecting({"a": 10, "b": 20})
        parts = [PartOfRun(name, bars, beside=True) for name in "ab"]
        for part, size in zip(parts, (10, 20), strict=True):
            part.expecting({"file": size})
        parts[0].fetching("file", 10, 10)
        clock.now = 1.0
        parts[0].writing(500)
        parts[1].fetching("file", 20, 20)
        parts[1].writing(250)
        clock.now = 2.0
        parts[1].writing(1_250)
    lines = drawn()
    (beside,) = [line for line in lines if "500 steps written" in line]
    assert "10.0/30.0" in beside
    assert "steps written: 1.75k steps [00:01, 1.00k steps/s]" in lines[-1]


def test_a_dataset_whose_id_another_one_begins_with_keeps_its_bytes() -> None:
    files = Files({"openml/6": 1_000, "openml/61": 2_000, "openml/61 data.arff": 3_000})
    files.leave_out("openml/6")
    assert files.sizes == {"openml/61": 2_000, "openml/61 data.arff": 3_000}


def test_what_an_earlier_run_fetched_has_no_speed(
    clock: Clock, drawn: Callable[[], list[str]]
) -> None:
    with Bars() as bars:
        bars.expecting({"a": MB, "b": MB, "c": MB})
        bars.fetching("a", MB, MB)
        bars.fetching("b", MB // 2, MB)
        for clock.now, done in [(0.0, 0), (1.0, 100_000)]:
            bars.fetching("c", done, MB)
        last = drawn()[-1]
    assert "1.60M/3.00M" in last and "100kB/s" in last and "<00:14" in last


def test_a_file_of_unknown_size_gives_bytes_without_a_share(
    clock: Clock, drawn: Callable[[], list[str]]
) -> None:
    with Bars() as bars:
        bars.expecting({"a": None, "b": 10})
        bars.fetching("a", 70_000, None)
        clock.now = 1.0
        bars.fetching("a", 90_000, None)
        assert drawn()[-1].strip() == "90.0kB [00:01, 20.0kB/s, file 1 of 2, a]"


def test_the_bar_has_rows_speed_and_remaining_time(
    clock: Clock, drawn: Callable[[], list[str]]
) -> None:
    with Bars() as bars:
        expect_rows(bars, "derived/out", 2_000, 10_000)
        clock.now = 2.0
        bars.writing(6_000)
        last = drawn()[-1]
    assert "steps written:  60%" in last and "6.00k/10.0k [00:02<00:02, 2.00k steps/s]" in last


SCRIPT = """
import multiprocessing, os, sys, threading
from datasets_cli.core.progress_bars import shown
sys.stderr.reconfigure(encoding=os.environ.get("ENCODING"), errors="backslashreplace")
with shown(None) as progress:
    progress.fetching("file", 50, 100)
    progress.fetching("file", 100, 100)
    progress.note("a note")
    progress.writing(5)
print(threading.active_count(), multiprocessing.get_start_method(allow_none=True))
"""

LINES = ["fetching file (100 B, 50 B of it here)", "fetched file (100 B) in 0.0 s", "a note"]


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
