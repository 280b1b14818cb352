"""Converting by one and by two workers: four checkpoints of Atari, four D4RL files.

    python benchmarks/conversion.py [--frames 500000] [--rows 400000] [--repeat 3]    needs ale-py

Four logs of the DQN Replay Dataset, of real ALE frames as ``atari.py`` makes them, are one dataset,
whose checkpoints are the work of the workers; four D4RL files as ``convert.py`` makes them are four
datasets, each of which is work of one worker. Everything counts but the download: checksums of the
raw files, start of the workers, conversion, checksums of what was written, fsync, commit. One and
two workers take turns, and the files that both write are compared.

Prints JSON. Seconds that pass say little where other work has the cores, or two of them are one: in
turn with the rest stands what two processes gain that share nothing. Seconds of a core say what two
free ones would give: all of this process, and half of what the workers take.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

PROJECT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PROJECT / "benchmarks"))

RUN = "atari_dqn/Pong/1"
D4RL = [f"d4rl/{name}-medium-v2" for name in ("ant", "halfcheetah", "hopper", "walker2d")]
WORKERS = (1, 2)


def write_logs(folder: Path, num_frames: int) -> int:
    """Write four logs of a run, one after the other in time; return the frames of each."""
    import atari

    rows = atari.play_rows("pong")
    repeats = -(-num_frames // len(rows["action"]))
    capacity = atari.write_log(folder, rows, repeats)
    for number in range(1, 4):
        for name in rows:
            first = folder / f"$store$_{name}_ckpt.0.gz"
            shutil.copy(first, folder / first.name.replace(".0.", f".{number}."))
        count = np.array((number + 1) * capacity - 1)
        atari.write_repeated(folder / f"add_count_ckpt.{number}.gz", count, (), 1)
    return capacity


def write_d4rl(root: Path, num_rows: int) -> None:
    """Lay files in D4RL's layout where downloads of the datasets that are complete would be."""
    import convert

    with tempfile.TemporaryDirectory() as made:
        convert.make(Path(made), "halfcheetah-medium-v2", num_rows)
        source = Path(made) / convert.FILES["halfcheetah-medium-v2"]
        digest = hashlib.sha256(source.read_bytes()).hexdigest()
        for id in D4RL:
            name = id.removeprefix("d4rl/").replace("-medium", "_medium")
            file = root / "downloads" / id / f"{name}.hdf5"
            file.parent.mkdir(parents=True)
            shutil.copy(source, file)
            state = {"url": "made", "validator": None, "size": None, "sha256": digest}
            Path(f"{file}.json").write_text(json.dumps(state))


def install_atari(folder: Path, root: Path, num_workers: int) -> None:
    """Install the four checkpoints."""
    import datasets_cli

    datasets_cli.download(
        RUN,
        source=folder,
        options={"checkpoints": "0:4"},
        num_workers=num_workers,
        root=root,
        force=True,
    )


def install_d4rl(root: Path, num_workers: int) -> None:
    """Install the four datasets from files that are there."""
    import datasets_cli

    datasets_cli.download(
        D4RL, verify=False, keep_raw=True, num_workers=num_workers, root=root, force=True
    )


def digest_of(root: Path) -> str:
    """Return one digest of all files of all datasets."""
    found = hashlib.sha256()
    for path in sorted((root / "datasets").rglob("*")):
        if path.is_file():
            found.update(path.read_bytes())
    return found.hexdigest()


def compare(install: Callable[[int], None], root: Path, repeat: int) -> dict[str, Any]:
    """Return seconds of one and of two workers in turn, and how much faster two are."""
    import two_cores

    seconds: dict[int, list[float]] = {number: [] for number in WORKERS}
    cores: dict[int, list[tuple[float, float]]] = {number: [] for number in WORKERS}
    digests = set()
    limits = []
    for _ in range(repeat):
        limits.append(two_cores.gain())
        for number in WORKERS:
            os.sync()
            start, before = time.perf_counter(), os.times()
            install(number)
            seconds[number].append(time.perf_counter() - start)
            cores[number].append(core_seconds(before, os.times()))
            digests.add(digest_of(root))
    if len(digests) > 1:
        raise ValueError("one and two workers do not write the same files")
    ratios = [one / two for one, two in zip(*seconds.values(), strict=True)]
    bounds = [
        (own + workers) / (own_of_two + workers_of_two / 2)
        for (own, workers), (own_of_two, workers_of_two) in zip(*cores.values(), strict=True)
    ]
    return {
        "seconds, medians": {n: round(statistics.median(s), 2) for n, s in seconds.items()},
        "seconds, minima": {n: round(min(s), 2) for n, s in seconds.items()},
        "times faster, median": round(statistics.median(ratios), 2),
        "times faster, of the minima": round(min(seconds[1]) / min(seconds[2]), 2),
        "seconds of a core: this process, workers; minima": {
            n: [round(min(part), 2) for part in zip(*each, strict=True)]
            for n, each in cores.items()
        },
        "times faster two processes of zlib that share nothing, in turn with these, median": round(
            statistics.median(limits), 2
        ),
        "times faster on two free cores, median": round(statistics.median(bounds), 2),
    }


def core_seconds(before: os.times_result, after: os.times_result) -> tuple[float, float]:
    """Return the seconds of a core that this process and its children took."""
    own = after.user - before.user + after.system - before.system
    children = after.children_user - before.children_user
    return own, children + after.children_system - before.children_system


def main() -> None:
    """Measure both and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--frames", type=int, default=500_000, help="of each checkpoint")
    parser.add_argument("--rows", type=int, default=400_000, help="of each D4RL file")
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        logs, root, other = (Path(scratch) / name for name in ("logs", "root", "other"))
        logs.mkdir()
        frames = write_logs(logs, arguments.frames)
        write_d4rl(other, arguments.rows)
        results = {
            "cores": os.cpu_count(),
            f"four Atari checkpoints of {frames:,} frames": compare(
                lambda number: install_atari(logs, root, number), root, arguments.repeat
            ),
            f"four D4RL files of {arguments.rows:,} rows": compare(
                lambda number: install_d4rl(other, number), other, arguments.repeat
            ),
        }
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
