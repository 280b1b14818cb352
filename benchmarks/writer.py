"""How fast ``DatasetWriter`` takes episodes, beside ``numpy.save``, fsync and sha256.

    python benchmarks/writer.py [--rows 1000000]

Episodes have 1,000 steps of 17 + 6 + 1 float32. The peer saves the arrays that are given, and those
that the dataset's files hold: the ted layout has each observation twice. Each is the best of three.

Prints JSON: seconds, and how many times ours fits into the peer's.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from datasets_cli import DatasetWriter
from datasets_cli.core.progress import silent

WIDTHS = {"observation": 17, "action": 6, "reward": 1}
EPISODE_STEPS = 1000


def best(call: Callable[[], Any]) -> float:
    """Return how long a call takes, the best of three."""
    took = []
    for _ in range(3):
        start = time.perf_counter()
        call()
        took.append(time.perf_counter() - start)
    return min(took)


def write(arrays: dict[str, np.ndarray], layout: str, folder: Path) -> None:
    """Write arrays as a dataset, an episode at a time."""
    shutil.rmtree(folder / "datasets", ignore_errors=True)
    options: Any = {"layout": layout, "root": folder, "progress": silent}
    with DatasetWriter("bench/rows", **options) as writer:
        for start in range(0, len(arrays["reward"]), EPISODE_STEPS):
            stop = start + EPISODE_STEPS
            steps = {name: values[start:stop] for name, values in arrays.items()}
            writer.add_episode({**steps, "truncated": True})


def save(arrays: list[np.ndarray], folder: Path) -> None:
    """Save arrays as numpy does, bring them to the disk, and hash them."""
    for array in arrays:
        with (folder / "saved.npy").open("wb") as file:
            np.save(file, array)
            file.flush()
            os.fsync(file.fileno())
        hashlib.sha256(array.data).hexdigest()


def measured(arrays: dict[str, np.ndarray], layout: str, folder: Path) -> dict[str, float]:
    """Return the seconds of a layout, and of the peer."""
    ours = best(partial(write, arrays, layout, folder))
    paths = (path for path in (folder / "datasets").rglob("*") if path.is_file())
    files = [np.fromfile(path, np.uint8) for path in paths]
    of_input = best(partial(save, [*arrays.values()], folder))
    of_files = best(partial(save, files, folder))
    return {
        "ours": ours,
        "numpy.save of what is given": of_input,
        "numpy.save of what is stored": of_files,
        "ratio to what is given": round(of_input / ours, 2),
        "ratio to what is stored": round(of_files / ours, 2),
    }


def main() -> None:
    """Measure both layouts, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    num_rows, rng = parser.parse_args().rows, np.random.default_rng(0)
    arrays = {
        name: rng.standard_normal((num_rows, width), np.float32) for name, width in WIDTHS.items()
    }
    with tempfile.TemporaryDirectory() as name:
        layouts = {each: measured(arrays, each, Path(name)) for each in ("ted", "compact")}
    print(json.dumps({"cores": os.cpu_count(), "rows": num_rows, **layouts}, indent=1))


if __name__ == "__main__":
    main()
