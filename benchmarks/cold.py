"""Epochs over a dataset that does not fit into the memory, by rows and by blocks of rows.

    python benchmarks/cold.py [--folder /var/tmp] [--gigabytes 3] [--limit 1024] [--seconds 3]

Makes a ``compact`` dataset of MuJoCo-like rows and samples batches of 256 in processes whose
memory, page cache included, a cgroup limits to ``--limit`` megabytes; that takes Linux and root.
Where no cgroup can be made, the limit is null; in any case the files are dropped from the page
cache before each process begins. Prints JSON: batches a second of each sampler, taken in turn, and
how many times as fast as by rows. Batches of each sampler are compared with the source.

Every row that is not in the memory makes Linux read ``read_ahead_kb`` around it, 128 on most
machines and 8,192 on some, which is wasted on single rows. Of blocks it must fit into the limit
once for each block of a window, which is otherwise read again and again. So both are also drawn
with it switched off (``MADV_RANDOM``), which the library does not do.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from timing import forget

ROUNDS, BATCH, SOURCE_ROWS = 3, 256, 500_000


ALONE = ", pages read alone"


def sampler_of(name: str) -> Any:
    """Return a sampler by its name and sizes."""
    import datasets_cli

    kind, *sizes = name.removesuffix(ALONE).split()
    return getattr(datasets_cli, kind)(*map(int, sizes))


def read_pages_alone(folder: Path) -> None:
    """Tell the kernel to read nothing around the pages of the files of a folder."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if str(folder) in line:
            begin, end = (int(address, 16) for address in line.split()[0].split("-"))
            size = ctypes.c_size_t(end - begin)
            assert not ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), size, mmap.MADV_RANDOM)


def sample_for(folder: Path, name: str, seconds: float) -> dict[str, float]:
    """Return the batches a second of a sampler over whole windows, and the slowest batch."""
    from datasets_cli import TensorDictReplayBuffer, open_storage

    storage, sampler = open_storage(folder), sampler_of(name)
    if name.endswith(ALONE):
        read_pages_alone(folder)
    buffer = TensorDictReplayBuffer(storage=storage, sampler=sampler, batch_size=BATCH)
    # The first batches of a window read all of it, so that a part of one would say nothing.
    at_once = getattr(sampler, "block_len", BATCH) * getattr(sampler, "window", 1) // BATCH
    times: list[float] = []
    while sum(times) < seconds:
        for _ in range(at_once):
            start = time.perf_counter()
            buffer.sample()
            times.append(time.perf_counter() - start)
    return {"batches a second": len(times) / sum(times), "slowest, ms": max(times) * 1e3}


def child(folder: Path, name: str, seconds: float, group: Path | None) -> dict[str, float]:
    """Return what ``sample_for`` returns in a new process, which is a member of a cgroup."""
    forget(folder)  # also because pages that are there already would not count for the process
    command = [sys.executable, __file__, "--child", name, "--folder", str(folder)]
    command += ["--seconds", str(seconds), *(["--group", str(group)] if group else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed with exit code {done.returncode}:\n{done.stderr}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


@contextlib.contextmanager
def limited(megabytes: int) -> Iterator[Path | None]:
    """Make a cgroup below this process's own, or yield None where that is not possible."""
    try:
        group, limit_file = _own_group()
        group.mkdir()
    except OSError as error:
        print(f"no cgroup ({error}): the page cache is emptied instead", file=sys.stderr)
        yield None
        return
    try:
        (group / limit_file).write_text(str(megabytes * 2**20))
        yield group
    finally:
        group.rmdir()


def _own_group() -> tuple[Path, str]:
    """Return where a cgroup can be made, and the name of the file for its limit."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            own = Path("/sys/fs/cgroup/memory" + path)
            return own / f"rlds-cold-{os.getpid()}", "memory.limit_in_bytes"
    own = Path("/sys/fs/cgroup") / path.strip("/")
    for parent in (own, own.parent):  # of version 2: one with processes has no cgroups below it
        control = parent / "cgroup.subtree_control"
        if control.exists() and "memory" in control.read_text().split():
            return parent / f"rlds-cold-{os.getpid()}", "memory.max"
    raise OSError(f"neither {own} nor the one above it gives memory limits to cgroups below it")


def make(folder: Path, gigabytes: float, names: list[str]) -> int:
    """Write the dataset, compare batches of it with the source, and return its rows."""
    from tables import install, mujoco_like

    from datasets_cli import TensorDictReplayBuffer, open_storage
    from datasets_cli.store.layouts.compact_writer import CompactWriter

    rows = mujoco_like(SOURCE_ROWS, infos=True)
    size = open_storage(install(CompactWriter, folder / "once", rows)).dataset.manifest.size_bytes
    times = max(1, round(gigabytes * 2**30 / size))
    storage = open_storage(install(CompactWriter, folder / "rows", rows, times))
    for name in names:
        buffer = TensorDictReplayBuffer(storage=storage, sampler=sampler_of(name), batch_size=BATCH)
        for _ in range(20):
            batch = buffer.sample()
            for key, values in rows.items():
                assert (batch[key].numpy() == values[batch["index"].numpy() % SOURCE_ROWS]).all()
    return len(storage)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"))
    parser.add_argument("--gigabytes", type=float, default=3)
    parser.add_argument("--limit", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--blocks", nargs="*", default=["1024 64"], help="block_len and window")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--group", type=Path, help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.child:
        if told.group:
            (told.group / "cgroup.procs").write_text(str(os.getpid()))
        print(json.dumps(sample_for(told.folder, told.child, told.seconds)))
        return
    by_rows = "SamplerWithoutReplacement"
    samplers = [by_rows, *(f"BlockShuffleSampler {each}" for each in told.blocks)]
    names = [name + how for how in ("", ALONE) for name in samplers]
    with tempfile.TemporaryDirectory(dir=told.folder) as temporary, limited(told.limit) as group:
        folder = Path(temporary)
        num_rows = make(folder, told.gigabytes, samplers)
        found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        for _ in range(ROUNDS):
            for name in names:
                found[name].append(child(folder / "rows", name, told.seconds, group))
        size = sum(path.stat().st_size for path in (folder / "rows").rglob("*") if path.is_file())
    medians = {
        name: {key: round(statistics.median(each[key] for each in of), 1) for key in of[0]}
        for name, of in found.items()
    }
    rate = {name: of["batches a second"] for name, of in medians.items()}
    document = {
        "rows": num_rows,
        "megabytes": size >> 20,
        "limit": told.limit if group else None,
        "read_ahead_kb": read_ahead(told.folder),
        "medians": medians,
        "times as fast": {name: round(rate[name] / rate[by_rows], 1) for name in names},
    }
    print(json.dumps(document, indent=1))


def read_ahead(folder: Path) -> int | None:
    """Return how many kilobytes are read around a page of a folder's disk; None if unknown."""
    device = folder.stat().st_dev
    disk = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    for queue in (disk / "queue", disk / ".." / "queue"):  # of a disk, of a partition
        if (path := queue / "read_ahead_kb").exists():
            return int(path.read_text())
    return None


if __name__ == "__main__":
    main()
