"""Epochs over a dataset that does not fit into the memory, by rows and by blocks of rows.

    python benchmarks/cold.py [--folder /var/tmp] [--gigabytes 2] [--limit 512] [--seconds 20]

Makes a ``compact`` dataset of MuJoCo-like rows and samples batches of 256 in processes whose
memory, page cache included, a cgroup limits to ``--limit`` megabytes; that takes Linux and root.
Where no cgroup can be made, the limit is null; in any case the files are dropped from the page
cache before each process begins. Prints JSON: batches a second of each sampler, taken in turn, and
how many times as fast as by rows. Batches of each sampler are compared with the source.
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from timing import forget

ROUNDS, BATCH, SOURCE_ROWS = 3, 256, 500_000


def sampler_of(name: str) -> Any:
    """Return a sampler by its name."""
    import datasets_cli

    kind, _, sizes = name.partition(" ")
    return getattr(datasets_cli, kind)(*map(int, sizes.split()))


def sample_for(folder: Path, name: str, seconds: float) -> dict[str, float]:
    """Return the batches a second of a sampler, and the slowest batch."""
    from datasets_cli import TensorDictReplayBuffer, open_storage

    storage = open_storage(folder)
    buffer = TensorDictReplayBuffer(storage=storage, sampler=sampler_of(name), batch_size=BATCH)
    times = []
    while sum(times) < seconds:
        start = time.perf_counter()
        buffer.sample()
        times.append(time.perf_counter() - start)
    return {"batches a second": len(times) / sum(times), "slowest": max(times) * 1e3}


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
    if "memory" not in (own / "cgroup.subtree_control").read_text().split():
        raise OSError(f"{own} does not give the memory controller to cgroups below it")
    return own / f"rlds-cold-{os.getpid()}", "memory.max"


def make(folder: Path, gigabytes: float, names: list[str]) -> int:
    """Write the dataset, compare batches of it with the source, and return its rows."""
    from tables import install, mujoco_like

    from datasets_cli import TensorDictReplayBuffer, open_storage
    from datasets_cli.store.compact.writer import CompactWriter

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
    parser.add_argument("--gigabytes", type=float, default=2)
    parser.add_argument("--limit", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--blocks", nargs="*", default=["1024 64"], help="block_len and window")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--group", type=Path, help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.child:
        if told.group:
            (told.group / "cgroup.procs").write_text(str(os.getpid()))
        print(json.dumps(sample_for(told.folder, told.child, told.seconds)))
        return
    names = ["SamplerWithoutReplacement", *(f"BlockShuffleSampler {each}" for each in told.blocks)]
    with tempfile.TemporaryDirectory(dir=told.folder) as temporary, limited(told.limit) as group:
        folder = Path(temporary)
        num_rows = make(folder, told.gigabytes, names)
        found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        for _ in range(ROUNDS):
            for name in names:
                found[name].append(child(folder / "rows", name, told.seconds, group))
        size = sum(path.stat().st_size for path in (folder / "rows").rglob("*") if path.is_file())
    medians = {
        name: {key: round(statistics.median(each[key] for each in of), 1) for key in of[0]}
        for name, of in found.items()
    }
    scattered = medians[names[0]]["batches a second"]
    document = {"rows": num_rows, "megabytes": size >> 20, "limit": told.limit if group else None}
    ratios = {name: round(of["batches a second"] / scattered, 1) for name, of in medians.items()}
    print(json.dumps(document | {"medians": medians, "times as fast": ratios}, indent=1))


if __name__ == "__main__":
    main()
