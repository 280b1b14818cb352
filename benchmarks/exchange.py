"""How fast datasets go into other tools' files and back, beside what numpy and pyarrow take.

    python benchmarks/exchange.py [NAME]... [--rows 1000000]

Each name of ``MEASUREMENTS`` is one measurement; all of them by default. Each runs in a process of
its own, whose peak of memory is counted above what it had after the imports and data.

Prints JSON: seconds of ours and of the peer's own writer or reader, and how many times ours fits
into the peer's.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tables import install, mujoco_like

from datasets_cli import DatasetWriter
from datasets_cli.exchange import npz, parquet
from datasets_cli.progress import Silent
from datasets_cli.store.arrays import open_arrays
from datasets_cli.store.layouts.ted_writer import TedWriter

BLOCK = 100_000
FORMATS: dict[str, Any] = {"npz": npz, "parquet": parquet}


def seconds(call: Callable[[], Any]) -> float:
    """Return how long a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def resident(name: str) -> int:
    """Return the bytes of this process in memory, now (``VmRSS``) or at most (``VmHWM``)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) << 10


def ours(kind: str, folder: Path) -> dict[str, float]:
    """Return the seconds of writing or reading, and the peak of memory above the imports."""
    name = kind.partition(" ")[0]
    path, dataset = folder / f"ours.{name}", open_arrays(folder / "datasets" / "bench" / "rows")
    before = resident("VmRSS")
    if kind.endswith("write"):
        took = seconds(lambda: FORMATS[name].write(dataset, path, Silent()))
    else:
        columns = FORMATS[name].recognise(path).map
        took = seconds(lambda: [None for _ in FORMATS[name].blocks(path, columns)])
    return {"seconds": took, "peak MB": (resident("VmHWM") - before) / 1e6}


def peers(kind: str, folder: Path) -> dict[str, float]:
    """Return the seconds of numpy's or pyarrow's own writer or reader of all the same columns."""
    name = kind.partition(" ")[0]
    file, path = folder / f"ours.{name}", folder / f"theirs.{name}"
    if name == "npz":
        arrays = dict(np.load(file))
        write, read = (lambda: np.savez(path, **arrays)), (lambda: dict(np.load(file)))
    else:
        table: pa.Table = pq.read_table(file)
        write, read = (lambda: pq.write_table(table, path)), (lambda: pq.read_table(file))
    return {"seconds": seconds(write if kind.endswith("write") else read)}


def writer(kind: str, folder: Path) -> dict[str, Any]:
    """Return the seconds of writing episodes of 1,000 steps one by one, and of the peer.

    The peer is ``numpy.save``, fsync and sha256, once of the arrays that are given and once of
    those that the dataset's files hold: the ted layout has each observation twice. Each is the
    best of three.
    """
    layout, rng = kind.partition(" ")[2], np.random.default_rng(0)
    num_rows = len(open_arrays(folder / "datasets" / "bench" / "rows"))
    widths = {"observation": 17, "action": 6, "reward": 1}
    arrays = {
        name: rng.standard_normal((num_rows, width), np.float32) for name, width in widths.items()
    }
    before = resident("VmRSS")

    def write() -> None:
        options: Any = {"layout": layout, "root": folder, "progress": Silent()}
        with DatasetWriter(f"bench/{layout}", **options) as made:
            for start in range(0, num_rows, 1000):
                steps = {name: values[start : start + 1000] for name, values in arrays.items()}
                made.add_episode({**steps, "truncated": True})

    def save(values: list[np.ndarray]) -> None:
        for array in values:
            with (folder / "saved.npy").open("wb") as file:
                np.save(file, array)
                file.flush()
                os.fsync(file.fileno())
            hashlib.sha256(array.data).hexdigest()

    def once() -> float:
        shutil.rmtree(made_at, ignore_errors=True)
        return seconds(write)

    made_at = folder / "datasets" / "bench" / layout
    took = {"seconds": min(once() for _ in range(3)), "peak MB": (resident("VmHWM") - before) / 1e6}
    files = [np.fromfile(path, np.uint8) for path in made_at.rglob("*") if path.is_file()]
    saved = {
        f"numpy.save of the {name}": min(seconds(partial(save, values)) for _ in range(3))
        for name, values in {"input": [*arrays.values()], "files": files}.items()
    }
    ratios = {f"ratio to {name}": round(each / took["seconds"], 2) for name, each in saved.items()}
    return {"ours": took, **saved, **ratios}


WRITERS = ("writer ted", "writer compact")
MEASUREMENTS = ("npz write", "npz read", "parquet write", "parquet read", *WRITERS)


def measured(kind: str, folder: Path) -> dict[str, Any]:
    """Return one measurement, each side in a process of its own."""
    sides: dict[str, Any] = {}
    for side in ("writer",) if kind in WRITERS else ("ours", "peers"):
        command = [sys.executable, __file__, "--side", side, "--kind", kind, "--at", str(folder)]
        sides[side] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    if kind in WRITERS:
        return dict(sides["writer"])
    return {**sides, "ratio": round(sides["peers"]["seconds"] / sides["ours"]["seconds"], 2)}


def main() -> None:
    """Measure what is named, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MEASUREMENTS))
    parser.add_argument("--rows", type=int, default=1_000_000)
    for hidden in ("--side", "--kind", "--at"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        side = {"ours": ours, "peers": peers, "writer": writer}[arguments.side]
        print(json.dumps(side(arguments.kind, Path(arguments.at))))
        return
    if unknown := {*arguments.names} - {*MEASUREMENTS}:
        parser.error(f"{', '.join(unknown)}: expected some of {', '.join(MEASUREMENTS)}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = mujoco_like(BLOCK)
        install(TedWriter, folder / "datasets/bench/rows", rows, arguments.rows // BLOCK)
        result = {kind: measured(kind, folder) for kind in arguments.names or MEASUREMENTS}
    print(json.dumps({"cores": os.cpu_count(), "rows": arguments.rows, **result}, indent=1))


if __name__ == "__main__":
    main()
