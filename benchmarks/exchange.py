"""How fast datasets go into other tools' files and back, beside those tools themselves.

    python benchmarks/exchange.py [NAME]... [--rows 1000000]

Each name of ``MEASUREMENTS`` is one measurement; all of them by default. Each side runs in a
process of its own, whose memory at its peak is counted above what it had after its imports: all
that is resident (pages of mapped files too, until the kernel drops them), and anonymous memory.

Prints JSON: seconds of ours and of the peer's own writer or reader of the same columns, and how
many times ours fits into the peer's. Minari's are its ``MinariStorage`` and ``iterate_episodes``,
tensordict's ``memmap``, and ``load_memmap`` with a copy of every leaf.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow.parquet as pq
from tables import install, mujoco_like
from tensordict import TensorDict

from datasets_cli import import_dataset
from datasets_cli.core.progress import silent
from datasets_cli.exchange.format import NAMES, READ_ONLY, format_of
from datasets_cli.store.arrays import open_arrays
from datasets_cli.store.layouts.ted_writer import TedWriter

BLOCK = 100_000
FORMATS = [name for name in NAMES if name not in READ_ONLY]
MEASUREMENTS = [f"{name} {what}" for name in FORMATS for what in ("write", "read", "import")]


def memory(pid: int, name: str) -> float:
    """Return the MB of a process: ``VmRSS``, at most ``VmHWM``, or of ``RssAnon``."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(name)) * 1.024e-3


def timed(call: Callable[[], Any]) -> dict[str, float]:
    """Return how long a call takes, and what memory the process had before."""
    had = {f"before {name}": memory(os.getpid(), name) for name in ("VmRSS", "RssAnon")}
    start = time.perf_counter()
    call()
    return {"seconds": time.perf_counter() - start, **had, "VmHWM": memory(os.getpid(), "VmHWM")}


def ours(name: str, what: str, folder: Path) -> dict[str, float]:
    """Return what writing, reading or importing takes here."""
    path, form = folder / f"ours.{name}", format_of(name)
    for module in ("datasets_cli.exchange.arrow_table", "pandas"):  # pyarrow looks for the latter
        import_module(module)
    if what == "write":
        dataset = open_arrays(folder / "datasets/bench/rows")
        return timed(lambda: form.write(dataset, path, silent, path))
    if what == "import":
        root = folder / "imported"
        return timed(lambda: import_dataset(path, "mine/rows", root=root, progress=None))
    found = form.recognise(path)
    assert found is not None
    # tensordict's leaves come as mapped: copying is what reads them.
    read = np.array if name == "torchrl" else id
    blocks = form.blocks(path, found.map)
    return timed(lambda: [[read(rows) for rows in block.values()][:0] for block in blocks])


def read_hdf5(path: Path) -> dict[str, np.ndarray]:
    """Return the columns of D4RL's files."""
    with h5py.File(path) as file:
        return {name: item[:] for name, item in file.items() if isinstance(item, h5py.Dataset)}


def write_hdf5(path: Path, columns: dict[str, np.ndarray]) -> None:
    """Write columns as D4RL's files have them."""
    with h5py.File(path, "w") as file:
        for name, rows in columns.items():
            file.create_dataset(name, data=rows)


def read_minari(path: Path) -> list[Any]:
    """Return the episodes of a folder."""
    from minari import MinariDataset

    return [*MinariDataset(path).iterate_episodes()]


def write_minari(path: Path, episodes: list[Any]) -> None:
    """Write episodes."""
    from gymnasium.spaces import Box
    from minari.data_collector import EpisodeBuffer
    from minari.dataset.minari_storage import MinariStorage

    observation, action = (Box(-np.inf, np.inf, (width,), np.float32) for width in (17, 6))
    path.mkdir()
    names = ("observations", "actions", "rewards", "terminations", "truncations")
    buffers = [EpisodeBuffer(**{name: getattr(each, name) for name in names}) for each in episodes]
    storage = MinariStorage.new(path, observation, action, jpeg_encoding=False)
    storage.update_episodes(buffers)


PEERS: dict[str, tuple[Callable[[Path], Any], Callable[[Path, Any], Any]]] = {
    "npz": (lambda path: dict(np.load(path)), lambda path, rows: np.savez(path, **rows)),
    "parquet": (pq.read_table, lambda path, table: pq.write_table(table, path)),
    "d4rl": (read_hdf5, write_hdf5),
    "minari": (read_minari, write_minari),
    "torchrl": (
        lambda path: TensorDict.load_memmap(path).clone(),
        lambda path, rows: rows.memmap(path),
    ),
}


def peers(name: str, what: str, folder: Path) -> dict[str, float]:
    """Return what the peer's own writer or reader of the same columns takes."""
    read, write = PEERS[name]
    source = folder / f"ours.{name}"
    if what == "read":
        return timed(lambda: read(source))
    rows = read(source)
    return timed(lambda: write(folder / f"theirs.{name}", rows))


def measured(kind: str, side: str, folder: Path) -> dict[str, float]:
    """Return what one side takes, in a process of its own that is watched."""
    command = [sys.executable, __file__, "--side", side, "--kind", kind, "--at", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        anonymous = 0.0
        while process.poll() is None:
            anonymous = max(anonymous, memory(process.pid, "RssAnon"))
            time.sleep(0.005)
        assert process.stdout is not None
        found = json.load(process.stdout)
    return {
        "seconds": round(found["seconds"], 3),
        "peak MB": round(found["VmHWM"] - found["before VmRSS"]),
        "peak anonymous MB": round(anonymous - found["before RssAnon"]),
    }


def compared(kind: str, folder: Path) -> dict[str, Any]:
    """Return what both sides take; of an import, which no peer has, ours alone."""
    found: dict[str, Any] = {"ours": measured(kind, "ours", folder)}
    if not kind.endswith("import"):
        found["peer"] = measured(kind, "peers", folder)
        found["ratio"] = round(found["peer"]["seconds"] / found["ours"]["seconds"], 2)
    for path in (folder / "imported", *folder.glob("theirs.*")):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    return found


def main() -> None:
    """Measure what is named, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MEASUREMENTS))
    parser.add_argument("--rows", type=int, default=1_000_000)
    for hidden in ("--side", "--kind", "--at"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        side = {"ours": ours, "peers": peers}[arguments.side]
        print(json.dumps(side(*arguments.kind.split(), Path(arguments.at))))
        return
    kinds = arguments.names or MEASUREMENTS
    if unknown := {*kinds} - {*MEASUREMENTS}:
        parser.error(f"{', '.join(unknown)}: expected some of {', '.join(MEASUREMENTS)}")
    with tempfile.TemporaryDirectory() as name:
        folder, rows = Path(name), mujoco_like(BLOCK)
        install(TedWriter, folder / "datasets/bench/rows", rows, arguments.rows // BLOCK)
        result = {}
        for form in dict.fromkeys(kind.split()[0] for kind in kinds):
            of_format = [kind for kind in MEASUREMENTS if kind.split()[0] == form]
            if of_format[0] not in kinds:
                measured(of_format[0], "ours", folder)  # the file that the others read
            result |= {kind: compared(kind, folder) for kind in of_format if kind in kinds}
            written = folder / f"ours.{form}"
            shutil.rmtree(written) if written.is_dir() else written.unlink()
    print(json.dumps({"cores": os.cpu_count(), "rows": arguments.rows, **result}, indent=1))


if __name__ == "__main__":
    main()
