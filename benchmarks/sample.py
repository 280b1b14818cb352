"""Sampling speed: this project, TorchRL, and the bare gather of the same bytes, in one process.

    python benchmarks/sample.py [--rows 1000000] [--calls 1000]

Prints a table on stderr and JSON on stdout. Each figure is microseconds of one call of ``sample()``
as a user makes it, sampler, index, flags and TensorDict included, with a warm page cache: the
median, and in brackets the mean, which counts the calls that read ahead for others. TorchRL is
measured before and after ours and the lower figure counts. Every kind of batch is compared with the
source arrays.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tables import EPISODE_STEPS, Rows, bare, install, mujoco_like, ours, torchrl_like, torchrls
from timing import compare, lower, shown

from datasets_cli.store.layouts.compact_writer import CompactWriter
from datasets_cli.store.layouts.ted_writer import TedWriter

Case = dict[str, Any]
UNIFORM, MANY = {"batch": 256}, {"batch": 2048}
EACH_ONCE = {"batch": 256, "replacement": False}
SLICES, LONG_SLICES = {"batch": 256, "num_slices": 8}, {"batch": 4096, "num_slices": 64}
CASES: dict[str, dict[str, Case]] = {
    "11 leaves": {
        "uniform 256": UNIFORM,
        "uniform 2048": MANY,
        "without replacement 256": EACH_ONCE,
        "slices 8x32": SLICES,
        "slices 64x64": LONG_SLICES,
    },
    "17 leaves": {"uniform 256": UNIFORM, "uniform 2048": MANY, "slices 8x32": SLICES},
    "TorchRL's rows": {
        "uniform 256": UNIFORM,
        "without replacement 256": EACH_ONCE,
        "slices 8x32": SLICES,
    },
}


def check(buffer: Any, rows: Rows, case: Case, episode_steps: int) -> None:
    """Compare a batch with the source arrays; slices must be consecutive rows of one episode."""
    batch = buffer.sample()
    index = batch["index"].reshape(len(batch), -1)[:, 0].numpy()
    slices = case.get("num_slices", 0)
    marked = {("next", "done"), ("next", "truncated")} if slices else set()
    for key, values in rows.items():
        if key not in marked:
            assert np.array_equal(batch[key].numpy(), values[index]), key
    if slices:
        runs = index.reshape(slices, -1)
        assert (np.diff(runs) == 1).all()
        assert (runs[:, 0] // episode_steps == runs[:, -1] // episode_steps).all()


def measure(name: str, case: Case, folder: Path, rows: Rows, steps: int, calls: int) -> Case:
    """Return the record of one case."""
    ted, compact = folder / "ted", folder / "compact"
    buffers = {"torchrl": torchrls(ted, **case), "ted": ours(ted, **case)}
    if compact.exists():
        buffers["compact"] = ours(compact, **case)
    buffers["torchrl, again"] = torchrls(ted, **case)
    for buffer in buffers.values():
        check(buffer, rows, case, steps)
    timed: dict[str, Any] = {label: buffer.sample for label, buffer in buffers.items()}
    if compact.exists():
        timed["bare gather"] = bare(compact, case["batch"])
    times = compare(timed, calls)
    times["torchrl"] = lower(times["torchrl"], times.pop("torchrl, again"))
    layouts = [label for label in ("ted", "compact") if label in times]
    record: Case = {
        "case": name,
        "microseconds": shown(times),
        "times faster than torchrl": {
            label: times["torchrl"].over(times[label]) for label in layouts
        },
    }
    if compact.exists():
        record["compact / bare gather"] = times["compact"].over(times["bare gather"])
    return record


def epoch(folder: Path) -> Case:
    """Return the seconds of a whole epoch, every row once in batches of 256."""
    seconds = {}
    for label, buffer in {
        "torchrl": torchrls(folder / "ted", **EACH_ONCE),
        "ted": ours(folder / "ted", **EACH_ONCE),
        "compact": ours(folder / "compact", **EACH_ONCE),
    }.items():
        start, num_rows = time.perf_counter(), 0
        for batch in buffer:
            num_rows += len(batch)
        seconds[label] = time.perf_counter() - start
        assert num_rows == len(buffer)
    return {
        "case": "11 leaves, a whole epoch of 256 without replacement",
        "seconds": {label: round(value, 2) for label, value in seconds.items()},
        "times faster than torchrl": {
            label: {"epoch": round(seconds["torchrl"] / seconds[label], 2)}
            for label in ("ted", "compact")
        },
    }


def results(num_rows: int, calls: int, folder: Path) -> Iterator[Case]:
    """Yield one record a case."""
    tables = {
        "11 leaves": (mujoco_like(num_rows), EPISODE_STEPS),
        "17 leaves": (mujoco_like(num_rows, infos=True), EPISODE_STEPS),
        "TorchRL's rows": (torchrl_like(10_000), 123),
    }
    for table, (rows, steps) in tables.items():
        install(TedWriter, folder / table / "ted", rows)
        if table != "TorchRL's rows":  # random pictures, which no compression is made for
            install(CompactWriter, folder / table / "compact", rows)
        for name, case in CASES[table].items():
            yield measure(f"{table}, {name}", case, folder / table, rows, steps, calls)
    yield epoch(folder / "11 leaves")


def line(result: Case, columns: tuple[str, ...]) -> str:
    """Return a case's line of the table: medians, means in brackets, ratios of both."""
    times = result.get("microseconds", {"median": {}, "mean": {}})
    cells = [
        f"{times['median'][name]} ({times['mean'][name]})" if name in times["median"] else ""
        for name in columns
    ]
    faster = [
        f"{layout} {' / '.join(f'{number}x' for number in ratio.values())}"
        for layout, ratio in result["times faster than torchrl"].items()
    ]
    return f"{result['case']:42}{''.join(f'{cell:>18}' for cell in cells)}  {', '.join(faster)}"


def main() -> None:
    """Measure every case and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--calls", type=int, default=1000)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")  # TorchRL's own
    columns = ("torchrl", "ted", "compact", "bare gather")
    print(f"{'microseconds':42}" + "".join(f"{name:>18}" for name in columns), file=sys.stderr)
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        for result in results(arguments.rows, arguments.calls, Path(folder)):
            cases.append(result)
            print(line(result, columns), file=sys.stderr)
    document = {"cores": os.cpu_count(), "rows": arguments.rows, "calls": arguments.calls}
    print(json.dumps(document | {"cases": cases}, indent=1))


if __name__ == "__main__":
    main()
