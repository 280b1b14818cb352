"""How long looking into a dataset takes, from the shell.

    python benchmarks/look.py [NAME]... [--repeat 9]

Each name of ``MEASUREMENTS`` is one measurement; all of them by default. Commands run as whole
processes on a terminal, each in turn with what it is compared with, so that noise falls on all
alike; modules are byte code and files in the page cache, as after the first run.

Prints JSON: medians in seconds that pass, and in seconds that a core works. Where a machine does
other work too, the first grow and the second hardly do.
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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from startup import BIN, run
from tables import Rows, flags, install, mujoco_like
from trajectories import memory_of

import datasets_cli
from datasets_cli.config import Config
from datasets_cli.core.progress import silent
from datasets_cli.project.statistics import _row_bytes, measured, sampled_rows
from datasets_cli.schema.column_statistics import QUANTILES, TRIED, ColumnStatistics
from datasets_cli.schema.columns import rows_per_block
from datasets_cli.store.arrays import open_arrays
from datasets_cli.store.layouts.compact_writer import CompactWriter
from datasets_cli.store.layouts.ted_writer import TedWriter

ID = "bench/rows"  # as ``install`` names what it writes
BLOCK = 1_000_000
EPISODE_STEPS = 1000
Seconds = dict[str, dict[str, float]]
Result = dict[str, Any]
Blocks = list[tuple[np.ndarray, np.ndarray]]
WRITERS = {"ted": TedWriter, "compact": CompactWriter}
REPEAT = 3  # of what runs in this process


@dataclass(frozen=True)
class Place:
    """A folder for datasets of any size, each written when it is first asked for."""

    folder: Path
    repeat: int

    @cache  # noqa: B019 - there is one of these
    def compact(self, num_rows: int) -> Path:
        """Return a root with a dataset of ``num_rows`` rows in the compact layout."""
        root = self.folder / f"compact-{num_rows}"
        install(CompactWriter, root / "datasets" / ID, small(BLOCK), num_rows // BLOCK)
        return root

    def seconds(self, commands: Mapping[str, list[str]], root: Path) -> Seconds:
        """Return the medians of each command, run in turn."""
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": f"{self.folder}/pyc"}
        environment |= {"RLDS_HOME": str(root), "COLUMNS": "100"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for number in range(self.repeat + 1):  # the first warms up
            for name, command in commands.items():
                time = run(command, environment)
                times[name] += [time] if number else []
        return {
            kind: {
                name: round(statistics.median(time[place] for time in each), 3)
                for name, each in times.items()
            }
            for place, kind in enumerate(("seconds", "seconds of a core"))
        }


def small(num_rows: int) -> Rows:
    """Return rows of few columns, so that many of them fit onto a disk."""
    rng = np.random.default_rng(0)
    row = np.arange(num_rows) + np.arange(num_rows) // EPISODE_STEPS
    steps = rng.normal(size=(num_rows + num_rows // EPISODE_STEPS, 3)).astype(np.float32)
    done = (np.arange(num_rows) % EPISODE_STEPS == EPISODE_STEPS - 1)[:, None]
    return flags(done) | {
        ("observation",): steps[row],
        ("next", "observation"): steps[row + 1],
        ("action",): rng.integers(0, 4, num_rows).astype(np.int32),
        ("next", "reward"): rng.normal(size=(num_rows, 1)).astype(np.float32),
    }


def peek(place: Place) -> Result:
    """Rows of a compact dataset of 50M rows, at its beginning and near its end."""
    num_rows = 50_000_000
    rlds = [str(BIN / "rlds"), "peek", ID]
    seconds = place.seconds(
        {"first rows": rlds, "last rows": [*rlds, "--start", str(num_rows - 5)]},
        place.compact(num_rows),
    )
    return {"rows": num_rows, **seconds, "at most": 0.4}


def sample(place: Place) -> Result:
    """A batch of 256 rows, beside importing torch and tensordict."""
    num_rows = BLOCK
    commands = {
        "rlds sample": [str(BIN / "rlds"), "sample", ID],
        "import torch, tensordict": [sys.executable, "-c", "import torch, tensordict"],
    }
    seconds = place.seconds(commands, place.compact(num_rows))
    ours, imports = commands
    beyond = {kind: round(each[ours] - each[imports], 3) for kind, each in seconds.items()}
    return {"rows": num_rows, **seconds, "beyond the imports": beyond, "at most": 0.3}


def diff(place: Place) -> Result:
    """Two datasets of 10M rows, equal or of other numbers, beside reading both in this process."""
    millions, config = 10, Config(place.folder / "diff")
    rows = mujoco_like(1_000_000)
    other = {k: np.roll(v, 1, axis=0) if v.dtype == np.float32 else v for k, v in rows.items()}
    measured = {}
    for layout, second in (("ted", rows), ("ted", other), ("compact", rows)):
        kind = "equal" if second is rows else "other"
        ids = [f"bench/{layout}", f"bench/{layout}-{kind}"]
        for id, columns in zip(ids, (rows, second), strict=True):
            path = config.root / "datasets" / id
            if not path.exists():
                install(WRITERS[layout], path, columns, millions, id=id)
        measured[f"{layout}, {kind}"] = compared(ids, config)
    return {"rows": millions * 1_000_000, **measured, "at most": 3}


def compared(ids: list[str], config: Config) -> dict[str, float]:
    """Return the seconds of comparing two datasets and of reading them, and the memory of it."""

    def compare() -> None:
        datasets_cli.compare_datasets(*ids, progress=silent, config=config)

    def read() -> None:
        for id in ids:
            read_all(config.root / "datasets" / id)

    reading, comparing = medians(read, compare)
    times = round(comparing / reading, 2)
    return {"read": reading, "compare": comparing, "times": times, "MiB": memory_of(compare)}


def medians(*calls: Callable[[], Any]) -> list[float]:
    """Return the median seconds of each call, all in turn; the first round warms up."""
    rounds = [[seconds_of(call) for call in calls] for _ in range(REPEAT + 1)]
    return [round(statistics.median(each), 3) for each in zip(*rounds[1:], strict=True)]


def seconds_of(call: Callable[[], Any]) -> float:
    """Return how long a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def read_all(folder: Path) -> None:
    """Read all rows of a dataset, block by block."""
    arrays = open_arrays(folder)
    rows = arrays.arrays_of(frozenset(column.key for column in arrays.manifest.columns))
    step = rows_per_block(arrays.row_bytes)
    for start in range(0, len(arrays), step):
        rows.run(start, min(start + step, len(arrays)))


def stats(place: Place) -> Result:
    """Statistics of 1M and 10M rows, beside their own reductions in memory, and numpy's plain ones.

    From the shell with the peak of the memory that is its own: mapped files are not.
    """
    rows, result = mujoco_like(BLOCK), {}
    for layout, writer in WRITERS.items():
        root, long = (place.folder / f"{name}-{layout}" for name in ("stats", "long"))
        for folder, millions in ((root, 1), (long, 10)):
            install(writer, folder / "datasets" / ID, rows, millions)
        columns = blocks_of(root / "datasets" / ID)
        call = {"root": root, "recompute": True, "progress": silent}
        calls = (partial(datasets_cli.dataset_stats, ID, **call), partial(own, columns))
        whole, ours, numpys = medians(*calls, partial(plain, columns))
        result[layout] = {
            "seconds": {"stats": whole, "own reductions": ours, "plain numpy": numpys},
            "stats over own reductions": round(whole / ours, 2),
            "stats over plain numpy": round(whole / numpys, 2),
            f"shell, {BLOCK:,} rows": shell(root),
            f"shell, {10 * BLOCK:,} rows": shell(long),
        }
    return {"rows": BLOCK, **result, "at most": 1.3}


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


MEASUREMENTS: dict[str, Callable[[Place], Result]] = {
    **{"peek": peek, "sample": sample, "diff": diff, "stats": stats}
}


def main() -> None:
    """Measure what is named, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MEASUREMENTS))
    parser.add_argument("--repeat", type=int, default=9)
    arguments = parser.parse_args()
    if unknown := {*arguments.names} - {*MEASUREMENTS}:
        parser.error(f"{', '.join(unknown)}: expected some of {', '.join(MEASUREMENTS)}")
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder), arguments.repeat)
        names = arguments.names or [*MEASUREMENTS]
        result = {name: MEASUREMENTS[name](place) for name in names}
    print(json.dumps({"cores": os.cpu_count(), **result}, indent=1))


if __name__ == "__main__":
    main()
