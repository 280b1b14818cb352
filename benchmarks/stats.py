"""Statistics of a dataset: reading all rows, beside what numpy alone takes for the same numbers.

    python benchmarks/stats.py [--repeat 5] [--long 10000000]

Rows of a MuJoCo task in each layout: 17 + 6 float32, reward, flags and successors. In one process
``rlds stats --recompute`` stands beside its own reductions over the same blocks, which are in
memory, and beside numpy's plain ones, a call each. From the shell: the whole command, of 1M rows
and of a longer dataset, with the peak of the memory that is its own (mapped files are not).

Prints JSON: medians in seconds that pass.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from startup import BIN
from tables import install, mujoco_like

import datasets_cli
from datasets_cli.look.statistics import _row_bytes, measured, sampled_rows
from datasets_cli.progress import Silent
from datasets_cli.schema.column_statistics import QUANTILES, TRIED, ColumnStatistics
from datasets_cli.schema.columns import rows_per_block
from datasets_cli.store.arrays import open_arrays
from datasets_cli.store.layouts.compact_writer import CompactWriter, TedWriter

ID = "bench/rows"
NUM_ROWS = 1_000_000
Blocks = list[tuple[np.ndarray, np.ndarray]]


def blocks_of(folder: Path) -> list[Blocks]:
    """Return the numbers of each column, block by block as they are read, and what is sampled."""
    dataset = open_arrays(folder)
    columns, sample = measured(dataset.manifest), sampled_rows(dataset.manifest)
    reader = dataset.arrays_of(frozenset(column.key for column in columns))
    step = rows_per_block(_row_bytes(dataset.manifest))
    found: list[Blocks] = [[] for _ in columns]
    for start in range(0, len(dataset), step):
        stop = min(start + step, len(dataset))
        rows = reader.run(start, stop)
        chosen = sample[(sample >= start) & (sample < stop)] - start
        for column, blocks in zip(columns, found, strict=True):
            blocks.append((rows[column.key].reshape(stop - start, -1), chosen))
    return found


def own(columns: list[Blocks]) -> None:
    """Work out what is kept of columns that are in memory."""
    for blocks in columns:
        first, *others = (ColumnStatistics(rows, sampled) for rows, sampled in blocks)
        for other in others:
            first.join(other)
        first.measures(), first.quantiles()


def plain(columns: list[Blocks]) -> None:
    """Work out the same by numpy's calls alone, one for each."""
    for blocks in columns:
        for rows, _ in blocks:
            np.isnan(rows).sum(0), np.isinf(rows).sum(0)
            mean = rows.mean(0, dtype=np.float64)
            ((rows - mean) ** 2).sum(0)
            low = rows.view(np.uint8) if rows.dtype == np.bool_ else rows
            low.min(0), low.max(0), (rows == rows[0]).all(0)
            np.unique(rows.reshape(-1)[: TRIED[-1]])
        sampled = np.concatenate([rows[chosen] for rows, chosen in blocks]).astype(np.float64)
        np.quantile(sampled, QUANTILES, axis=0), np.quantile(sampled, QUANTILES)


def seconds(repeat: int, *calls: Callable[[], Any]) -> list[float]:
    """Return the median of each call, all in turn."""
    times: list[list[float]] = [[] for _ in calls]
    for number in range(repeat + 1):  # the first warms up
        for call, taken in zip(calls, times, strict=True):
            began = time.perf_counter()
            call()
            if number:
                taken.append(time.perf_counter() - began)
    return [round(statistics.median(each), 3) for each in times]


def shell(root: Path) -> dict[str, float]:
    """Return seconds and peak memory of the command, which reads all rows."""
    command = [str(BIN / "rlds"), "stats", ID, "--recompute", "-q"]
    environment = {**os.environ, "RLDS_HOME": str(root)}
    began, peak = time.perf_counter(), 0
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        own_kb = [int(line.split()[1]) for line in lines if line.startswith("RssAnon:")]
        peak = max([peak, *own_kb])
        time.sleep(0.01)
    taken = time.perf_counter() - began
    assert process.returncode == 0
    return {"seconds": round(taken, 3), "peak MB": round(peak / 1024)}


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--long", type=int, default=10_000_000)
    arguments = parser.parse_args()
    rows, result = mujoco_like(NUM_ROWS), {}
    with tempfile.TemporaryDirectory() as folder:
        for layout, writer in (("ted", TedWriter), ("compact", CompactWriter)):
            root, long = Path(folder, layout), Path(folder, f"{layout}-long")
            install(writer, root / "datasets" / ID, rows)
            install(writer, long / "datasets" / ID, rows, arguments.long // NUM_ROWS)
            columns = blocks_of(root / "datasets" / ID)
            call = {"root": root, "recompute": True, "progress": Silent()}
            whole, ours, numpys = seconds(
                arguments.repeat,
                lambda call=call: datasets_cli.dataset_stats(ID, **call),
                lambda columns=columns: own(columns),
                lambda columns=columns: plain(columns),
            )
            result[layout] = {
                "seconds": {"stats": whole, "own reductions": ours, "plain numpy": numpys},
                "stats over own reductions": round(whole / ours, 2),
                "stats over plain numpy": round(whole / numpys, 2),
                f"shell, {NUM_ROWS:,} rows": shell(root),
                f"shell, {arguments.long:,} rows": shell(long),
            }
    print(json.dumps({"rows": NUM_ROWS, "cores": os.cpu_count(), **result}, indent=1))


if __name__ == "__main__":
    main()
