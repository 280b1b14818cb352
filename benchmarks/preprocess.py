"""``preprocess()`` beside TorchRL's and a bare loop, in this process and with workers.

    python -m benchmarks.preprocess [CASE]... [--quick]

Each call runs in a fresh process; the start of its workers counts. The values of the results are
compared. No network is used.
"""

from __future__ import annotations

import hashlib
import shutil
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import convert, measure
from benchmarks.measure import Figure, Row, Run

if TYPE_CHECKING:
    from tensordict import TensorDict

NAME = "halfcheetah-medium-v2"
HASHES_A_ROW = 400


def scaled(rows: TensorDict) -> TensorDict:
    """A vectorised function: observations and rewards on another scale."""
    new = rows.select("action", "next", "observation")
    new["observation"] = (rows["observation"] - 0.1) / 2
    new["next", "reward"] = rows["next", "reward"] * 0.01
    return new


def slow(rows: TensorDict) -> TensorDict:
    """A loop over rows in Python, 0.2 ms each."""
    import torch
    from tensordict import TensorDict

    digests = []
    for row in rows["observation"].numpy():
        digest = row.tobytes()
        for _ in range(HASHES_A_ROW):
            digest = hashlib.sha256(digest).digest()
        digests.append(digest[0])
    return TensorDict({"digest": torch.tensor(digests)}, rows.batch_size)


def returns_to_go(rows: TensorDict) -> TensorDict:
    from tensordict import TensorDict

    rewards = rows["next", "reward"]
    return TensorDict({"togo": rewards.flip(0).cumsum(0).flip(0)}, rows.batch_size)


def ours(folder: str, function: str, num_workers: str, num_rows: str) -> dict[str, float]:
    """Time our ``preprocess``."""
    from datasets_cli import ExperienceReplay

    replay = ExperienceReplay(f"d4rl/{NAME}", root=Path(folder) / "ours", download=False)
    # Parts of the same size for one worker and two; the default of a vectorised function.
    size: Any = {"num_frames": int(num_rows), "chunksize": 2000 if function == "slow" else None}
    size["num_workers"] = None if num_workers == "default" else int(num_workers)
    dest = Path(folder) / "out"
    return measure.timed(lambda: replay.preprocess(globals()[function], dest=dest, **size))


def torchrls(folder: str) -> dict[str, float]:
    from torchrl.data.datasets.d4rl import D4RLExperienceReplay

    root = Path(folder) / "torchrl"
    replay = D4RLExperienceReplay(NAME, 256, direct_download=True, root=root)
    return measure.timed(lambda: replay.preprocess(scaled, dest=Path(folder) / "out"))


def converted(run: Run) -> Path:
    """Return a folder with a D4RL file, converted by both."""
    folder = run.folder / "converted"
    if not folder.exists():
        folder.mkdir()
        convert.make_d4rl(folder, NAME, run.pick(1_000_000, 200_000))
        for step in ("convert_ours", "convert_torchrl"):
            measure.fresh("convert", step, folder, NAME)
    return folder


def vectorised(run: Run) -> Iterator[Row]:
    """A vectorised function of every row, by both with their default number of workers."""
    folder, num_rows = converted(run), run.pick(1_000_000, 200_000)
    calls = {
        "ours": ("ours", folder, "scaled", "default", num_rows),
        "TorchRL": ("torchrls", folder),
    }
    times = in_fresh_processes(calls, folder, run.pick(3, 1))
    yield from measure.rows_of(f"scale {num_rows:,} rows", times, ("TorchRL",), "s")


def by_workers(run: Run) -> Iterator[Row]:
    """A function that one core bounds, by two workers beside one; zlib gains what two cores can."""
    folder, num_rows = converted(run), run.pick(300_000, 20_000)
    gains, repeat = [], run.pick(3, 1)
    calls = {
        "2 workers": ("ours", folder, "slow", 2, num_rows),
        "1 worker": ("ours", folder, "slow", 1, num_rows),
    }
    for _ in range(repeat):
        gains.append(convert.zlib_seconds(1) / convert.zlib_seconds(2))
    times = in_fresh_processes(calls, folder, repeat)
    times["gain of zlib"] = Figure(times["1 worker"].mean / statistics.median(gains))
    yield from measure.rows_of(
        f"a slow function of {num_rows:,} rows", times, ("1 worker", "gain of zlib"), "s"
    )


def in_fresh_processes(
    calls: dict[str, tuple[Any, ...]], folder: Path, repeat: int
) -> dict[str, Figure]:
    """Return the median seconds of steps, each in its own process; their results are equal."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    results = set()
    for _ in range(repeat):
        for name, (step, *arguments) in calls.items():
            shutil.rmtree(folder / "out", ignore_errors=True)
            seconds[name].append(measure.fresh("preprocess", step, *arguments)["seconds"])
            results.add(digest_of(folder / "out"))
    assert len(results) == 1, "the results differ"
    return {name: Figure(statistics.median(each)) for name, each in seconds.items()}


def digest_of(folder: Path) -> str:
    """Return a digest of the first rows of a result; TorchRL leaves out the last one."""
    digest = hashlib.sha256()
    for name in ("observation.memmap", "next/reward.memmap", "digest.memmap"):
        if (folder / name).exists():
            digest.update((folder / name).read_bytes()[:100_000])
    return digest.hexdigest()


def per_trajectory(run: Run) -> Iterator[Row]:
    """A function of one trajectory at a time, beside a bare loop over slices in memory.

    Seconds of this process's core, which other work does not change.
    """
    from datasets_cli import ExperienceReplay, create_dataset

    count = run.pick(50_000, 5_000)
    lengths = np.full(count, 20)
    draw = np.random.default_rng(0).random
    shapes = {"observation": 11, "next_observation": 11, "action": 3, "reward": 1}
    columns = {name: draw((20 * count, size), np.float32) for name, size in shapes.items()}
    right = columns["reward"].reshape(count, -1)[:, ::-1].cumsum(1)[:, ::-1].reshape(-1)
    root = run.folder / "short"
    create_dataset("mine/short", columns, lengths=lengths, root=root)
    replay = ExperienceReplay("mine/short", root=root)
    rows, results = replay[:], iter(range(100))

    def ours() -> Any:
        dest = root / f"out{next(results)}"
        return replay.preprocess(returns_to_go, 0, 0, dest=dest, per="trajectory")

    def loop() -> None:
        for start in range(0, len(rows), 20):
            returns_to_go(rows[start : start + 20])

    assert np.allclose(ours().column(("togo",)).flatten().numpy(), right, rtol=1e-4)
    seconds: dict[str, list[float]] = {"per trajectory": [], "bare loop": []}
    for _ in range(run.pick(3, 1)):
        for name, call in zip(seconds, (ours, loop), strict=True):
            start = time.process_time()
            call()
            seconds[name].append(time.process_time() - start)
    figures = {name: Figure(statistics.median(each)) for name, each in seconds.items()}
    case = f"{count:,} trajectories, of a core"
    yield from measure.rows_of(case, figures, ("bare loop",), "s")


CASES = {"vectorised": vectorised, "by_workers": by_workers, "per_trajectory": per_trajectory}

if __name__ == "__main__":
    measure.run(CASES, {"ours": ours, "torchrls": torchrls})
