"""How long batches of views take beside those of the dataset that they are of.

    python benchmarks/views.py [--millions 1] [--calls 600]

A dataset in trajectories of 1,000 steps, the page cache warm. The views: every other trajectory, by
a table of rows and by a search (which views of more than 10 million rows use), and one run of
trajectories. Then a filter over 50,000 trajectories, whose table is there. Prints JSON: medians and
means in microseconds, and how many times the dataset's time each takes.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from tables import install, mujoco_like
from timing import compare, shown

from datasets_cli import ExperienceReplay
from datasets_cli.store import selection as selected_rows
from datasets_cli.store.layouts.compact_writer import CompactWriter
from datasets_cli.store.layouts.ted_writer import TedWriter

FILTERED = 50_000
WHERE = "return > 0 and length >= 10"
WRITERS = {"compact": CompactWriter, "ted": TedWriter}


def opened(root: Path, batch: int, replacement: bool, num_slices: int | None) -> ExperienceReplay:
    """Return a buffer over the dataset under a root."""
    return ExperienceReplay(
        "bench/rows",
        batch,
        root=root,
        download=False,
        replacement=replacement,
        num_slices=num_slices,
    )


def views_of(replay: ExperienceReplay) -> dict[str, ExperienceReplay]:
    """Return views of half of a dataset, each by the way that it finds its rows."""
    num_trajectories = len(replay.trajectories)
    others = np.arange(0, num_trajectories, 2)
    with mock.patch.object(selected_rows, "MAPPED_ROWS", 0):
        search = replay.episodes_at(others)
    return {
        "table of rows": replay.episodes_at(others),
        "search": search,
        "one run": replay.episodes_at(np.arange(num_trajectories // 2)),
    }


def check(replay: ExperienceReplay, view: ExperienceReplay) -> None:
    """Check that a batch of a view has the dataset's rows."""
    batch = view.sample()
    starts = replay.trajectories["start"][view.trajectories["number"]]
    place = np.searchsorted(view.trajectories["start"], batch["index"], side="right") - 1
    rows = starts[place] + batch["index"].numpy() - view.trajectories["start"][place]
    assert (replay[rows]["observation"] == batch["observation"]).all()


def few_steps(num_trajectories: int) -> dict[Any, np.ndarray]:
    """Return rows in trajectories of 10 steps."""
    rows = mujoco_like(10 * num_trajectories)
    done = (np.arange(10 * num_trajectories) % 10 == 9)[:, None]
    return rows | {("next", "done"): done, ("next", "truncated"): done}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--millions", type=int, default=1)
    parser.add_argument("--calls", type=int, default=600)
    options = parser.parse_args()
    cases = {
        "uniform": (256, True, None),
        "without replacement": (256, False, None),
        "slices": (256, True, 8),
    }
    found: dict[str, Any] = {"cores": os.cpu_count()}
    with tempfile.TemporaryDirectory() as name:
        rows = mujoco_like(1_000_000)
        for layout, writer in WRITERS.items():
            root = Path(name, layout)
            install(writer, root / "datasets" / "bench" / "rows", rows, options.millions)
            for case, arguments in cases.items():
                replay = opened(root, *arguments)
                views = views_of(replay)
                for view in views.values():
                    check(replay, view)
                calls = {"dataset": replay.sample}
                calls |= {way: view.sample for way, view in views.items()}
                times = compare(calls, options.calls)
                slower = {way: time.over(times["dataset"]) for way, time in times.items()}
                found[f"{layout}, {case}"] = {"microseconds": shown(times), "times": slower}
        root = Path(name, "many")
        install(CompactWriter, root / "datasets" / "bench" / "rows", few_steps(FILTERED))
        replay = opened(root, 256, True, None)
        replay.filter(WHERE)  # works the table out
        calls = {
            "filter": lambda: replay.filter(WHERE),
            "take": lambda: replay.take(0.1, "-return"),
        }
        found[f"{FILTERED} trajectories"] = shown(compare(calls, 50))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
