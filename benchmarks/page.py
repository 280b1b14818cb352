"""How long the page takes with a large dataset, in a browser, and how much memory its server.

    python benchmarks/page.py [--rows 50000000]

The dataset is compact: 50M rows in 20,000 trajectories, 50 of which have 27,000 steps. Frames are
those of a second dataset, one trajectory of 27,000 steps: frames of 50M rows would take an hour to
write. Both are written first, and so are the statistics. Needs Chromium: ``make browser``.

Prints JSON: seconds, counts and MiB, each beside what it may be at most or must be at least.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import HTTPCookieProcessor, build_opener

import numpy as np
from tables import Rows, flags, install

import datasets_cli
from datasets_cli.store.layouts.compact_writer import CompactWriter

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.support.browser import Browser, started_browser

LONG, BLOCK, IN_BLOCK = 27_000, 1_000_000, 400
ROWS, FRAMES = "bench/rows", "bench/frames"
REQUESTS, REPEAT, PLAYED_SECONDS, SCROLLED_ROWS = 500, 5, 10, 10_000


def rows_of(ends: np.ndarray) -> Rows:
    """Return rows of few columns, of trajectories with these last rows."""
    generator, num_rows = np.random.default_rng(0), int(ends[-1]) + 1
    done = np.zeros((num_rows, 1), np.bool_)
    done[ends] = True
    row = np.arange(num_rows) + np.cumsum(done) - done[:, 0]
    steps = generator.normal(size=(num_rows + len(ends), 3)).astype(np.float32).cumsum(0)
    return flags(done) | {
        ("observation",): steps[row],
        ("next", "observation"): steps[row + 1],
        ("action",): generator.integers(0, 4, num_rows).astype(np.int32),
        ("next", "reward"): generator.normal(size=(num_rows, 1)).astype(np.float32),
    }


def make(root: Path, num_rows: int) -> None:
    """Write both datasets, and the statistics of the large one."""
    ends = np.linspace(LONG, BLOCK, IN_BLOCK).astype(np.int64) - 1
    install(CompactWriter, root / "datasets" / ROWS, rows_of(ends), num_rows // BLOCK, id=ROWS)
    frames = np.zeros((LONG + 1, 84, 84), np.uint8)
    places = np.arange(LONG + 1) % 80
    frames[np.arange(LONG + 1), places, places] = 255
    pictures = {("pixels",): frames[:-1], ("next", "pixels"): frames[1:]}
    rows = rows_of(np.array([LONG - 1])) | pictures
    install(CompactWriter, root / "datasets" / FRAMES, rows, id=FRAMES)
    datasets_cli.dataset_stats(ROWS, root=root)


@contextmanager
def served(root: Path) -> Iterator[tuple[str, int]]:
    """Yield the address of a page with its token, and the number of its process."""
    command = [sys.executable, "-m", "datasets_cli", "--json", "ui", "--no-browser"]
    environment = {**os.environ, "RLDS_HOME": str(root)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    text = ""
    while not text.rstrip().endswith("}"):
        text += process.stdout.readline()
    try:
        yield json.loads(text)["address"], process.pid
    finally:
        process.terminate()
        process.wait()


def memory_of(process: int) -> float:
    """Return the memory of a process that is its own, MiB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) / 1024


def requests(address: str, process: int) -> dict[str, Any]:
    """Return how long the page of the dataset takes, and the memory before and after requests."""
    opener = build_opener(HTTPCookieProcessor())
    opener.open(address).read()
    base = address.partition("?")[0]

    def seconds(path: str) -> float:
        began = time.perf_counter()
        opener.open(base + path).read()
        return time.perf_counter() - began

    pages = [seconds(f"d/{ROWS}") for _ in range(REPEAT)]
    before, api = memory_of(process), f"api/d/{ROWS}/trajectories"
    generator = np.random.default_rng(0)
    for number in generator.integers(0, IN_BLOCK, REQUESTS).tolist():
        kind = number % 5
        seconds(
            [
                f"d/{ROWS}/trajectories/{number}",
                f"{api}/0/curves?columns=observation&points=2000&start={number}",
                f"{api}?sort=return&start={number}&count=500",
                f"{api}/{number}/steps?start=0&count=500",
                f"api/d/{FRAMES}/trajectories/0/frames/{number}.png",
            ][kind]
        )
    grown = memory_of(process) - before
    return {
        "dataset page, first": round(pages[0], 3),
        "dataset page, median": {"seconds": round(statistics.median(pages), 3), "at most": 1.5},
        f"memory after {REQUESTS} requests": {"MiB more": round(grown), "at most": 150},
    }


def first_paint(browser: Browser, base: str) -> dict[str, Any]:
    """Return when a trajectory of 27,000 steps has its first paint, and all of its curves."""
    painted, drawn = [], []
    for _ in range(REPEAT):
        browser.open(f"{base}d/{ROWS}/trajectories/0")
        paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
        painted.append(browser.wait(paint) / 1000)
        drawn.append(
            browser.run(
                "return performance.timing.domContentLoadedEventEnd"
                " - performance.timing.navigationStart"
            )
            / 1000
        )
    return {
        "seconds": round(statistics.median(painted), 3),
        "until all curves are drawn": round(statistics.median(drawn), 3),
        "at most": 0.5,
    }


def play(browser: Browser, base: str) -> dict[str, Any]:
    """Return how many steps pass in each second of playing, and how many of them are shown."""
    browser.open(f"{base}d/{FRAMES}/trajectories/0")
    browser.wait("document.getElementById('frame').width === 84")
    browser.run(
        "window.told = []; new MutationObserver(() => told.push([performance.now() / 1000,"
        " Number(readout.textContent.split(' ')[1])]))"
        ".observe(readout, {childList: true});"
    )
    browser.press(" ", 32, " ")
    time.sleep(PLAYED_SECONDS + 2)
    browser.press(" ", 32, " ")
    times, steps = np.array(browser.run("return told")).T
    seconds = times[0] + np.arange(1, PLAYED_SECONDS + 2)
    shown = np.diff(np.searchsorted(times, seconds)).tolist()
    passed = np.diff(np.interp(seconds, times, steps)).round().astype(int).tolist()
    return {"steps in each second": passed, "at least": 29, "of them shown": shown}


def scroll(browser: Browser, base: str) -> dict[str, Any]:
    """Return the longest task of the main thread while 10,000 rows are scrolled."""
    browser.open(f"{base}d/{ROWS}/trajectories")
    browser.wait("document.querySelector('#rows').scrollHeight > 100000")
    browser.run(
        "window.tasks = [0]; window.rowsSeen = 0;"
        "new PerformanceObserver((list) => list.getEntries().forEach((each) =>"
        " tasks.push(each.duration))).observe({type: 'longtask', buffered: false});"
        "const box = document.querySelector('#rows');"
        "const height = box.querySelector('tbody tr').getBoundingClientRect().height;"
        "const on = () => { box.scrollTop += 20 * height; rowsSeen = box.scrollTop / height;"
        " if (rowsSeen < arguments[0]) requestAnimationFrame(on); }; on();",
        SCROLLED_ROWS,
    )
    seen = browser.wait(f"rowsSeen >= {SCROLLED_ROWS} && rowsSeen")
    time.sleep(1)
    longest = max(browser.run("return tasks"))
    return {"rows": round(seen), "longest task of 50 ms or more, ms": longest, "below": 100}


def main() -> None:
    """Make the datasets, measure, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=50 * BLOCK)
    num_rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        root, began = Path(folder), time.perf_counter()
        make(root, num_rows)
        made = round(time.perf_counter() - began)
        with served(root) as (address, process), started_browser() as browser:
            result = requests(address, process)
            browser.look()
            browser.open(address)
            base = address.partition("?")[0]
            result |= {"first paint": first_paint(browser, base)}
            result |= {"play": play(browser, base), "scroll": scroll(browser, base)}
    about = {"cores": os.cpu_count(), "rows": num_rows, "seconds to make": made}
    print(json.dumps(about | result, indent=1))


if __name__ == "__main__":
    main()
