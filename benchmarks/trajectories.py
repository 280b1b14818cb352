"""How long the table of a dataset's trajectories takes, and how much memory, in each layout.

    python benchmarks/trajectories.py [--millions 1] [--repeat 10]

Rows of 11 leaves in trajectories of 1,000 steps, in the page cache. Prints JSON: medians and means
in microseconds of all columns of the table, worked out and as they were kept, and of one pass over
the bytes of the file that the rewards are in; and by how many MiB the process grew most meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tables import EPISODE_STEPS, install, mujoco_like
from timing import compare, shown

from datasets_cli import Trajectories, open_storage
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.layouts.compact_writer import CompactWriter
from datasets_cli.store.layouts.ted_writer import TedWriter

FILE_OF_REWARD = {"compact": "rows.memmap", "ted": "next/reward.memmap"}
WRITERS = {"compact": CompactWriter, "ted": TedWriter}


def work_out(folder: Path, root: Path) -> None:
    """Work out every column of the table, which nobody did before."""
    shutil.rmtree(root, ignore_errors=True)
    dict(Trajectories(open_storage(folder), CacheRoot(root)))


def read_again(folder: Path, root: Path) -> None:
    """Read every column as it was kept."""
    dict(Trajectories(open_storage(folder), CacheRoot(root)))


def read_bytes(path: Path) -> None:
    """Read every byte of a file through a mapping, which no reader of its rows could leave out."""
    np.memmap(path, np.uint64, "r", shape=path.stat().st_size // 8).max()


def memory_of(call: Callable[[], Any]) -> float:
    """Return by how many MiB the memory that is no file's grew most during a call."""
    peak, done = [anonymous()], threading.Event()

    def watch() -> None:
        while not done.wait(0.002):
            peak.append(anonymous())

    watcher = threading.Thread(target=watch)
    watcher.start()
    call()
    done.set()
    watcher.join()
    return round((max(peak) - peak[0]) / 1024, 1)


def anonymous() -> int:
    """Return the KiB of this process that are no file's."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--millions", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=10)
    options = parser.parse_args()
    calls: dict[str, Callable[[], Any]] = {}
    with tempfile.TemporaryDirectory() as name:
        rows = mujoco_like(1_000_000)
        returns = rows["next", "reward"].astype(np.float64).reshape(-1, EPISODE_STEPS).sum(1)
        for layout, writer in WRITERS.items():
            folder = install(writer, Path(name, layout), rows, options.millions)
            root = Path(name, f"{layout}-root")
            found = Trajectories(open_storage(folder), CacheRoot(root))["return"]
            np.testing.assert_allclose(found, np.tile(returns, options.millions), atol=1e-9)
            calls[f"{layout}: worked out"] = partial(work_out, folder, root)
            calls[f"{layout}: read again"] = partial(read_again, folder, root)
            path = folder / FILE_OF_REWARD[layout]
            calls[f"{layout}: bytes of {path.name} alone"] = partial(read_bytes, path)
        memory = {case: memory_of(call) for case, call in calls.items() if "worked" in case}
        times = compare(calls, options.repeat)
    measured = {"cores": os.cpu_count(), "microseconds": shown(times, 0), "MiB": memory}
    print(json.dumps(measured, indent=1))


if __name__ == "__main__":
    main()
