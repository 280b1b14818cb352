"""How preprocess() scales with worker processes, and how fast it is beside TorchRL's.

    python benchmarks/workers.py [--rows 1000000] [--slow-rows 300000] [--repeat 3] [--short 50000]

Converts a file in D4RL's layout with this project and with TorchRL. Then, each time in a fresh
process and in turn: a vectorised function of every row, by TorchRL's ``preprocess`` and by ours,
each with its default number of workers, and by ours with other numbers; and a function that
works for a fifth of a millisecond on each row in Python, with one worker and with two. The time is
that of the call, the start of processes included. Values of the results are compared.

``--short 50000`` does something else: the return to go of the same number of rows in so many
trajectories, by a function of one trajectory, in this process, beside a bare loop that calls the
same function on slices of a TensorDict in memory, and beside a vectorised function of chunks. The
seconds are of this process's CPU, which other work on the machine does not change.

Prints JSON: medians of seconds; TorchRL/ours, and one worker/two, beside what two processes gain on
this machine that share nothing. No network is used.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import convert
import two_cores

if TYPE_CHECKING:
    from tensordict import TensorDict

Result = dict[str, Any]

NAME = "halfcheetah-medium-v2"
HASHES_A_ROW = 400


def scaled(rows: TensorDict) -> TensorDict:
    """A vectorised function: observations and rewards on another scale."""
    new = rows.select("action", "next", "observation")
    new["observation"] = (rows["observation"] - 0.1) / 2
    new["next", "reward"] = rows["next", "reward"] * 0.01
    return new


def slow(rows: TensorDict) -> TensorDict:
    """A function that is bound by one core: a loop over rows in Python."""
    from tensordict import TensorDict

    digests = []
    for row in rows["observation"].numpy():
        digest = row.tobytes()
        for _ in range(HASHES_A_ROW):
            digest = hashlib.sha256(digest).digest()
        digests.append(digest[0])
    import torch

    return TensorDict({"digest": torch.tensor(digests)}, rows.batch_size)


def ours(folder: Path, function: Callable[[Any], Any], num_workers: int | None, rows: int) -> float:
    """Return the seconds of our ``preprocess``."""
    from datasets_cli import ExperienceReplay

    replay = ExperienceReplay(f"d4rl/{NAME}", root=folder / "ours", download=False)
    # Parts of the same size for one worker and two; the default of a vectorised function.
    chunksize = None if function is scaled else 2000
    dest, begun = folder / "out", time.perf_counter()
    replay.preprocess(
        function, num_workers=num_workers, num_frames=rows, chunksize=chunksize, dest=dest
    )
    return time.perf_counter() - begun


def torchrls(folder: Path) -> float:
    """Return the seconds of TorchRL's ``preprocess``, on all cores."""
    from torchrl.data.datasets.d4rl import D4RLExperienceReplay

    replay = D4RLExperienceReplay(NAME, 256, direct_download=True, root=folder / "torchrl")
    begun = time.perf_counter()
    replay.preprocess(scaled, dest=folder / "out")
    return time.perf_counter() - begun


def make(folder: Path, rows: int) -> float:
    """Make the file, and convert it with both."""
    convert.make(folder, NAME, rows)
    convert.convert_ours(folder, NAME)
    convert.convert_torchrl(folder, NAME)
    return 0.0


STEPS: dict[str, Callable[[Path, int], float]] = {
    "make": make,
    "vectorised, TorchRL": lambda folder, rows: torchrls(folder),
    "vectorised, ours": lambda folder, rows: ours(folder, scaled, None, rows),
    "vectorised, ours, calling process": lambda folder, rows: ours(folder, scaled, 0, rows),
    "vectorised, ours, 2 workers": lambda folder, rows: ours(folder, scaled, 2, rows),
    "slow, 1 worker": lambda folder, rows: ours(folder, slow, 1, rows),
    "slow, 2 workers": lambda folder, rows: ours(folder, slow, 2, rows),
}


def to_go(rows: TensorDict) -> TensorDict:
    """The return to go of one trajectory."""
    from tensordict import TensorDict

    rewards = rows["next", "reward"]
    return TensorDict({"togo": rewards.flip(0).cumsum(0).flip(0)}, rows.batch_size)


def short(rows: int, trajectories: int, repeat: int) -> Result:
    """Return the CPU seconds that ``rows`` in so many trajectories take, called one by one."""
    import numpy as np

    from datasets_cli import ExperienceReplay, create_dataset

    lengths = np.full(trajectories, rows // trajectories)
    count = int(lengths.sum())
    shapes = {"observation": 11, "next_observation": 11, "action": 3, "reward": 1}
    draw = np.random.default_rng(0).random
    columns = {name: draw((count, size), np.float32) for name, size in shapes.items()}
    expected = columns["reward"].reshape(trajectories, -1)[:, ::-1].cumsum(1)[:, ::-1].reshape(-1)
    seconds: dict[str, list[float]] = {"per trajectory": [], "a chunk": [], "bare loop": []}
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        create_dataset("mine/short", columns, lengths=lengths, root=root)
        replay = ExperienceReplay("mine/short", root=root)
        for number in range(repeat):
            for name, function, per in (
                ("per trajectory", to_go, "trajectory"),
                ("a chunk", scaled, "chunk"),
            ):
                begun = time.process_time()
                made = replay.preprocess(function, 0, 0, dest=root / f"{name}{number}", per=per)
                seconds[name].append(time.process_time() - begun)
                if per == "trajectory":
                    found = made.column(("togo",))
                    assert np.allclose(found.flatten().numpy(), expected, rtol=1e-4)
            everything, begun = replay[:], time.process_time()
            for start in range(0, count, int(lengths[0])):
                to_go(everything[start : start + int(lengths[0])])
            seconds["bare loop"].append(time.process_time() - begun)
    medians = {name: round(statistics.median(times), 2) for name, times in seconds.items()}
    return {"rows": count, "trajectories": trajectories, "CPU seconds": medians}


def values(folder: Path, rows: int) -> str:
    """Return a digest of what a function made, but of the last row, which TorchRL leaves out."""
    digest = hashlib.sha256()
    for name in ("observation.memmap", "next/reward.memmap", "digest.memmap"):
        path = folder / "out" / name
        if path.exists():
            data = path.read_bytes()
            # TorchRL's file is shorter by a row, and ours has a whole number of rows.
            row_bytes = -(-len(data) // rows)
            digest.update(data[: (rows - 1) * row_bytes])
    return digest.hexdigest()


def run(step: str, folder: Path, rows: int) -> float:
    """Do one step in a fresh process, once the disk is at rest; return its seconds."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    os.sync()
    command = [sys.executable, __file__, "--step", step, str(folder), str(rows)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{step}: {done.stderr[-2000:]}")
    return float(done.stdout.splitlines()[-1])


def compare(rows: int, slow_rows: int, repeat: int) -> Result:
    """Run every step in turn, and return medians and ratios."""
    seconds: dict[str, list[float]] = {step: [] for step in STEPS if step != "make"}
    results: dict[str, set[str]] = {"vectorised": set(), "slow": set()}
    limits: list[float] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        run("make", folder, rows)
        for _ in range(repeat):
            limits.append(two_cores.gain())
            for step, times in seconds.items():
                kind = step.partition(",")[0]
                count = rows if kind == "vectorised" else slow_rows
                times.append(run(step, folder, count))
                results[kind].add(values(folder, count))
    if any(len(found) != 1 for found in results.values()):
        raise ValueError("the results differ")
    ratios = {
        "vectorised, TorchRL/ours": ("vectorised, TorchRL", "vectorised, ours"),
        "slow, 1 worker/2 workers": ("slow, 1 worker", "slow, 2 workers"),
    }
    return {
        "seconds": {step: round(statistics.median(times), 2) for step, times in seconds.items()},
        "every round": {
            step: [round(each, 2) for each in times] for step, times in seconds.items()
        },
        **{
            name: round(statistics.median(seconds[top]) / statistics.median(seconds[bottom]), 2)
            for name, (top, bottom) in ratios.items()
        },
        "two processes of zlib that share nothing, one/two": round(statistics.median(limits), 2),
    }


def main() -> None:
    """Compare and print the result, or do one step of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--slow-rows", type=int, default=300_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--short", type=int, metavar="TRAJECTORIES")
    parser.add_argument("--step", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        step, folder, rows = arguments.step
        print(STEPS[step](Path(folder), int(rows)))
        return
    if arguments.short:
        print(json.dumps(short(arguments.rows, arguments.short, arguments.repeat), indent=1))
        return
    known = {"cores": os.cpu_count(), "rows": arguments.rows, "slow rows": arguments.slow_rows}
    found = compare(arguments.rows, arguments.slow_rows, arguments.repeat)
    print(json.dumps(known | {"rounds": arguments.repeat} | found, indent=1))


if __name__ == "__main__":
    main()
