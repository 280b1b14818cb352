"""What a dataset costs on the disk: bytes a transition, opening it, and its first batches.

    python benchmarks/disk.py [--rows 1000000] [--long 10000000]

Prints JSON: bytes of a transition in each layout; milliseconds to open 10,000 and ``--long`` rows,
beside ``TensorDict.load_memmap`` of the same folder; and batches of 256 a second from files that
are not in the page cache (no process has them mapped), beside TorchRL.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import warnings
from functools import partial
from pathlib import Path
from typing import Any

from tables import install, mujoco_like, ours, torchrls
from tensordict import TensorDict
from timing import cold_per_second, compare

from datasets_cli import open_storage
from datasets_cli.store.layouts.compact_writer import CompactWriter
from datasets_cli.store.layouts.ted_writer import TedWriter

WRITERS = {"ted": TedWriter, "compact": CompactWriter}
BLOCK_ROWS = 10_000


def opening(folder: Path, long: int) -> dict[str, Any]:
    """Return the milliseconds that opening takes, at few rows and at many."""
    block = mujoco_like(BLOCK_ROWS)
    result: dict[str, Any] = {}
    for layout, writer in WRITERS.items():
        short = install(writer, folder / f"{layout}-short", block)
        tall = install(writer, folder / f"{layout}-long", block, long // BLOCK_ROWS)
        calls: dict[str, Any] = {
            f"{BLOCK_ROWS} rows": partial(open_storage, short),
            f"{long} rows": partial(open_storage, tall),
        }
        if layout == "ted":
            calls["TensorDict.load_memmap"] = partial(TensorDict.load_memmap, tall)
        times = [time.divided(1e3, 2).median for time in compare(calls, 100).values()]
        result[layout] = dict(zip(calls, times, strict=True))
        result[layout]["many rows / few rows"] = round(times[1] / times[0], 2)
    return result


def cost(folders: dict[str, Path], num_rows: int) -> dict[str, Any]:
    """Return the bytes of a transition and the cold batches a second of every layout."""
    cold = {
        layout: cold_per_second(lambda path=path: ours(path, 256).sample, path)
        for layout, path in folders.items()
    }
    ted = folders["ted"]
    cold["torchrl"] = cold_per_second(lambda: torchrls(ted, 256).sample, ted)
    sizes = {
        layout: round(open_storage(path).dataset.manifest.size_bytes / num_rows, 1)
        for layout, path in folders.items()
    }
    return {"bytes a transition": sizes, "cold batches of 256 a second": cold}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--long", type=int, default=10_000_000)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")  # TorchRL's own
    document: dict[str, Any] = {"cores": os.cpu_count(), "rows": arguments.rows}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for leaves in (11, 17):
            rows = mujoco_like(arguments.rows, infos=leaves == 17)
            folders = {
                layout: install(writer, folder / f"{layout}-{leaves}", rows)
                for layout, writer in WRITERS.items()
            }
            document[f"{leaves} leaves"] = cost(folders, arguments.rows)
        document["milliseconds to open"] = opening(folder, arguments.long)
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
