"""How long opening an installed dataset takes, in each layout.

    python benchmarks/opening.py [--repeat 1000]

Prints JSON: medians and means in microseconds, the files in the page cache and the modules
imported, of ``open_storage`` and of ``ExperienceReplay`` on an installed id; beside reading the
manifest with ``json`` and mapping every file, which no reader could leave out.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tables import Rows, install, mujoco_like
from timing import compare, shown

from datasets_cli import ExperienceReplay, open_storage
from datasets_cli.store.layouts.compact_writer import CompactWriter
from datasets_cli.store.layouts.ted_writer import TedWriter

ID = "bench/rows"  # as ``install`` names what it writes
NUM_ROWS = 1000


def framed(rows: Rows) -> Rows:
    """Return rows with an observation that the compact layout keeps as frames."""
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 4, (NUM_ROWS, 84, 84), dtype=np.uint8)
    frames[:, 20:] = 0
    return rows | {("observation",): frames, ("next", "observation"): np.roll(frames, -1, 0)}


def least(folder: Path) -> None:
    """Do what opening cannot leave out: parse the manifest, map every file that it names."""
    for name in json.loads((folder / "manifest.json").read_bytes())["files"]:
        with (folder / name).open("rb") as file:
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeat", type=int, default=1000)
    repeat = parser.parse_args().repeat
    warnings.filterwarnings("ignore")  # that the rows of a benchmark are unverified
    rows = mujoco_like(NUM_ROWS)
    cases: dict[str, tuple[Any, Rows]] = {
        "compact": (CompactWriter, rows),
        "ted": (TedWriter, rows),
        "compact, with frames": (CompactWriter, framed(rows)),
    }
    calls: dict[str, Callable[[], Any]] = {}
    with tempfile.TemporaryDirectory() as name:
        for case, (writer, columns) in cases.items():
            root = Path(name, case)
            folder = install(writer, root / "datasets" / ID, columns)
            calls[f"{case}: open_storage"] = partial(open_storage, folder)
            calls[f"{case}: ExperienceReplay"] = partial(
                ExperienceReplay, ID, root=root, download=False
            )
            calls[f"{case}: json and mmap alone"] = partial(least, folder)
        times = compare(calls, repeat)
    print(json.dumps({"cores": os.cpu_count(), "microseconds": shown(times, 0)}, indent=1))


if __name__ == "__main__":
    main()
