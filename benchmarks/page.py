"""The page with a large dataset, in a browser: seconds, frames, and memory of its server.

    python -m benchmarks.page [--quick]

50M rows in 20,000 trajectories in the ``compact`` layout, 50 of which have 27,000 steps. Frames are
those of a second dataset, one trajectory of 27,000 steps: frames of 50M rows would take an hour to
write. Both and the statistics are written first. Needs Chromium: ``make browser``. Each figure is
beside its bound.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import HTTPCookieProcessor, build_opener

import numpy as np

import datasets_cli
from benchmarks import measure
from benchmarks.measure import PROJECT, Figure, Row, Run
from tests.support.browser import DRIVER, Browser, started_browser

LONG, BLOCK, IN_BLOCK = 27_000, 1_000_000, 400
ROWS, FRAMES = "bench/rows", "bench/frames"
SCROLLED_ROWS = 10_000


def page(run: Run) -> Iterator[Row | str]:
    """A dataset's page, a trajectory, playing and scrolling."""
    if not Path(DRIVER).exists():
        yield "page: Chromium's driver is not installed (make browser)"
        return
    make(run.folder, run.pick(50 * BLOCK, BLOCK))
    with served(run.folder) as (address, process), started_browser() as browser:
        yield from requests(address, process, run.pick(500, 100))
        browser.look()
        browser.open(address)
        base = address.partition("?")[0]
        yield from first_paint(browser, base)
        yield from play(browser, base, run.pick(10, 3))
        yield from scroll(browser, base)


def bounded(case: str, figure: float, bound: float, unit: str) -> Row:
    """Return the row of a figure beside its bound."""
    kind = "at least" if unit.endswith("/s") else "at most"
    return Row(case, "page", Figure(figure), kind, Figure(bound), unit)


def make(root: Path, num_rows: int) -> None:
    """Write both datasets, and the statistics of the large one."""
    ends = np.linspace(LONG, BLOCK, IN_BLOCK).astype(np.int64) - 1
    measure.install(
        "compact", root / "datasets" / ROWS, measure.few_columns(ends), num_rows // BLOCK, id=ROWS
    )
    frames = np.zeros((LONG + 1, 84, 84), np.uint8)
    places = np.arange(LONG + 1) % 80
    frames[np.arange(LONG + 1), places, places] = 255
    pictures = {("pixels",): frames[:-1], ("next", "pixels"): frames[1:]}
    rows = measure.few_columns(np.array([LONG - 1])) | pictures
    measure.install("compact", root / "datasets" / FRAMES, rows, id=FRAMES)
    datasets_cli.dataset_stats(ROWS, root=root)


@contextmanager
def served(root: Path) -> Iterator[tuple[str, int]]:
    """Yield the address of a page with its token, and the number of its process."""
    command = [sys.executable, "-m", "datasets_cli", "--json", "ui", "--no-browser"]
    environment = {**os.environ, "RLDS_HOME": str(root)}
    process = subprocess.Popen(
        command, cwd=PROJECT, env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    text = ""
    while not text.rstrip().endswith("}"):
        text += process.stdout.readline()
        assert process.poll() is None, "the page did not start"
    try:
        yield json.loads(text)["address"], process.pid
    finally:
        process.terminate()
        process.wait()


def requests(address: str, process: int, count: int) -> Iterator[Row]:
    """Time the page of the dataset, and the server's memory over many requests."""
    opener = build_opener(HTTPCookieProcessor())
    opener.open(address).read()
    base = address.partition("?")[0]

    def seconds(path: str) -> float:
        start = time.perf_counter()
        opener.open(base + path).read()
        return time.perf_counter() - start

    times = statistics.median(seconds(f"d/{ROWS}") for _ in range(5))
    yield bounded("a dataset's page", times, 1.5, "s")
    before, api = measure.memory_mb("RssAnon", process), f"api/d/{ROWS}/trajectories"
    for number in np.random.default_rng(0).integers(0, IN_BLOCK, count).tolist():
        paths = (
            f"d/{ROWS}/trajectories/{number}",
            f"{api}/0/curves?columns=observation&points=2000&start={number}",
            f"{api}?sort=return&start={number}&count=500",
            f"{api}/{number}/steps?start=0&count=500",
            f"api/d/{FRAMES}/trajectories/0/frames/{number}.png",
        )
        seconds(paths[number % len(paths)])
    grown = measure.memory_mb("RssAnon", process) - before
    yield bounded(f"memory after {count} requests", max(grown, 0), 150, "MB")


def first_paint(browser: Browser, base: str) -> Iterator[Row]:
    """Time the first paint of a trajectory of 27,000 steps, and until all curves are drawn."""
    painted, drawn = [], []
    for _ in range(5):
        browser.open(f"{base}d/{ROWS}/trajectories/0")
        paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
        painted.append(browser.wait(paint) / 1000)
        loaded = "timing.domContentLoadedEventEnd - performance.timing.navigationStart"
        drawn.append(browser.run(f"return performance.{loaded}") / 1000)
    yield bounded("27,000 steps, first paint", statistics.median(painted), 0.5, "s")
    yield bounded("27,000 steps, all curves", statistics.median(drawn), 1, "s")


def play(browser: Browser, base: str, seconds: int) -> Iterator[Row]:
    """Count the steps that pass in a second of playing, and those that are shown."""
    browser.open(f"{base}d/{FRAMES}/trajectories/0")
    browser.wait("document.getElementById('frame').width === 84")
    browser.run(
        "window.shown = []; new MutationObserver(() => shown.push([performance.now() / 1000,"
        " Number(readout.textContent.split(' ')[1])]))"
        ".observe(readout, {childList: true});"
    )
    browser.press(" ", 32, " ")
    time.sleep(seconds + 2)
    browser.press(" ", 32, " ")
    times, steps = np.array(browser.run("return shown")).T
    ends = times[0] + np.arange(1, seconds + 2)
    seen = np.diff(np.searchsorted(times, ends))
    passed = np.diff(np.interp(ends, times, steps))
    yield bounded("playing, steps", float(np.median(passed)), 29, "1/s")
    yield bounded("playing, frames shown", float(np.median(seen)), 29, "1/s")


def scroll(browser: Browser, base: str) -> Iterator[Row]:
    """Time the longest task of the main thread while the table of trajectories is scrolled."""
    browser.open(f"{base}d/{ROWS}/trajectories")
    browser.wait("document.querySelector('#rows').scrollHeight > 10000")
    browser.run(
        "window.tasks = [0]; window.rowsSeen = 0; window.last = -1;"
        "new PerformanceObserver((list) => list.getEntries().forEach((each) =>"
        " tasks.push(each.duration))).observe({type: 'longtask', buffered: false});"
        "const box = document.querySelector('#rows');"
        "const height = box.querySelector('tbody tr').getBoundingClientRect().height;"
        "const on = () => { last = box.scrollTop; box.scrollTop += 20 * height;"
        " rowsSeen = box.scrollTop / height; window.atEnd = last === box.scrollTop;"
        " if (rowsSeen < arguments[0] && !atEnd) requestAnimationFrame(on); }; on();",
        SCROLLED_ROWS,
    )
    seen = browser.wait(f"(rowsSeen >= {SCROLLED_ROWS} || atEnd) && rowsSeen")
    time.sleep(1)
    longest = max(browser.run("return tasks"))
    yield bounded(f"scrolling {round(seen):,} rows, longest task", longest, 100, "ms")


CASES = {"page": page}

if __name__ == "__main__":
    measure.run(CASES)
