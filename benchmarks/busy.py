"""Sampling beside other work: the cores of a training machine are never idle.

    python benchmarks/busy.py [--rows 1000000] [--calls 1000]

Prints tables on stderr and JSON on stdout. Microseconds of one ``sample()`` as it is called: mean,
median and the 99th percentile, of ours, TorchRL and cpprb in turn: alone, beside a learner of torch
that trains on all cores, and with one and two busy processes a core, of which the learner is one.
The last table has a learner and ``sample()`` in one loop, in one process.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from contenders import named
from learner import Learner
from sample import EACH_ONCE, MANY, SLICES, UNIFORM, Case, check
from tables import EPISODE_STEPS, Rows, install, mujoco_like, ours, torchrls
from timing import seconds_in_turn

from datasets_cli.store.layouts.compact_writer import CompactWriter
from datasets_cli.store.layouts.ted_writer import TedWriter

CASES: dict[str, Case] = {
    "uniform 256": UNIFORM,
    "uniform 2048": MANY,
    "without replacement 256": EACH_ONCE,
    "slices 8x32": SLICES,
}
LEARNER = [sys.executable, str(Path(__file__).with_name("learner.py"))]
SPINNER = [sys.executable, "-c", "print('busy', flush=True)\nwhile True: pass"]
CORES = os.cpu_count() or 1
NEIGHBOURS = {
    "alone": [],
    "beside a learner": [LEARNER],
    "one busy process a core": [LEARNER, *[SPINNER] * (CORES - 1)],
    "two busy processes a core": [LEARNER, *[SPINNER] * (2 * CORES - 1)],
}

Draw = Callable[[], Any]


@contextlib.contextmanager
def neighbours(commands: list[list[str]]) -> Iterator[None]:
    """Let processes work beside this one."""
    running = [subprocess.Popen(command, stdout=subprocess.PIPE) for command in commands]
    try:
        for process in running:
            assert process.stdout is not None
            process.stdout.readline()  # until it works
        yield
    finally:
        for process in running:
            process.kill()
            process.communicate()


def cpprbs(rows: Rows, batch: int) -> Draw:
    """Return what draws from cpprb's buffer of the same rows."""
    import cpprb

    columns = named(rows)
    specs = {
        name: {"shape": values.shape[1:] or 1, "dtype": values.dtype}
        for name, values in columns.items()
    }
    buffer = cpprb.ReplayBuffer(len(columns["index"]), specs)
    buffer.add(**columns)
    return lambda: buffer.sample(batch)


def draws_of(case: Case, folder: Path, rows: Rows) -> dict[str, Draw]:
    """Return what draws a batch of a case, by library and layout."""
    buffers = {
        "torchrl": torchrls(folder / "ted", **case),
        "ted": ours(folder / "ted", **case),
        "compact": ours(folder / "compact", **case),
    }
    for buffer in buffers.values():
        check(buffer, rows, case, EPISODE_STEPS)
    draws = {name: buffer.sample for name, buffer in buffers.items()}
    if "num_slices" in case or "replacement" in case:
        return draws
    return draws | {"cpprb": cpprbs(rows, case["batch"])}


def figures(seconds: list[float]) -> dict[str, float]:
    """Return mean, median and 99th percentile in microseconds."""
    each = np.array(seconds) * 1e6
    return {
        "mean": round(float(each.mean()), 1),
        "median": round(float(np.median(each)), 1),
        "p99": round(float(np.quantile(each, 0.99)), 1),
    }


def measure(draws: dict[str, Draw], calls: int) -> dict[str, Any]:
    """Return the times of each library, and how many times the others' means are of ours."""
    times = {name: figures(each) for name, each in seconds_in_turn(draws, calls).items()}
    ratios = {
        f"{peer} / {layout}": round(times[peer]["mean"] / times[layout]["mean"], 2)
        for peer in ("torchrl", "cpprb")
        for layout in ("compact", "ted")
        if peer in times
    }
    return {"microseconds": times, "means": ratios}


def in_a_loop(draws: dict[str, Draw], steps: int) -> dict[str, Any]:
    """Return the times of ``sample()`` inside the loop of a learner of this process."""
    seconds: dict[str, list[float]] = {name: [] for name in draws}
    learning: dict[str, list[float]] = {name: [] for name in draws}
    for _ in range(5):
        for name, draw in draws.items():
            learner = Learner()
            for _ in range(steps // 5):
                begun = time.perf_counter()
                batch = draw()
                drawn = time.perf_counter()
                learner.step(batch)
                seconds[name].append(drawn - begun)
                learning[name].append(time.perf_counter() - drawn)
    times = {name: figures(each) for name, each in seconds.items()}
    means = {name: round(statistics.fmean(each) * 1e6) for name, each in learning.items()}
    of_torchrl = {
        name: round(each["mean"] / times["torchrl"]["mean"], 3) for name, each in times.items()
    }
    return {"microseconds": times, "a step of learning": means, "of torchrl's mean": of_torchrl}


def line(name: str, times: dict[str, dict[str, float]]) -> str:
    """Return a line of a table: mean, median and 99th percentile of each."""
    cells = [
        f"{library} {each['mean']:.0f} {each['median']:.0f} {each['p99']:.0f}"
        for library, each in times.items()
    ]
    return f"{name:26}" + "".join(f"{cell:>28}" for cell in cells)


def main() -> None:
    """Measure every case beside all neighbours, and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--calls", type=int, default=1000)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")  # TorchRL's own
    rows = mujoco_like(arguments.rows)
    document: dict[str, Any] = {"cores": CORES, "rows": arguments.rows, "calls": arguments.calls}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        install(TedWriter, folder / "ted", rows)
        install(CompactWriter, folder / "compact", rows)
        draws = {name: draws_of(case, folder, rows) for name, case in CASES.items()}
        for label, commands in NEIGHBOURS.items():
            print(f"\n{label}: mean, median, 99th percentile in microseconds", file=sys.stderr)
            with neighbours(commands):
                document[label] = {
                    name: measure(each, arguments.calls) for name, each in draws.items()
                }
            for name, measured in document[label].items():
                print(line(name, measured["microseconds"]), measured["means"], file=sys.stderr)
        learned = {name: draws["uniform 256"][name] for name in ("torchrl", "ted", "compact")}
        document["in the loop of TD3+BC"] = in_a_loop(learned, arguments.calls)
        print("\nin the loop of TD3+BC", file=sys.stderr)
        print(
            line("uniform 256", document["in the loop of TD3+BC"]["microseconds"]), file=sys.stderr
        )
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
