"""Sampling speed: this project, TorchRL, and the bare gather of the same bytes, in one process.

    python benchmarks/sample.py [--rows 1000000] [--calls 500]

Prints a table on stderr and JSON on stdout. Each figure is the median microseconds of one call of
``sample()`` as a user makes it, sampler, index, flags and TensorDict included, with a warm page
cache. TorchRL is measured before and after ours and the lower figure counts. Every kind of batch is
compared with the source arrays.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

from datasets_cli import (
    RandomSampler,
    SamplerWithoutReplacement,
    SliceSampler,
    TensorDictReplayBuffer,
    open_storage,
)
from datasets_cli.store.columns import Key
from datasets_cli.store.compact_writer import CompactWriter
from datasets_cli.store.manifest import Manifest, write_manifest
from datasets_cli.store.writer import TedWriter

EPISODE_STEPS = 1000
CASES: dict[str, dict[str, Any]] = {
    "uniform 256": {"batch": 256},
    "uniform 2048": {"batch": 2048},
    "without replacement 256": {"batch": 256, "replacement": False},
    "slices 8x32": {"batch": 256, "num_slices": 8},
    "slices 64x64": {"batch": 4096, "num_slices": 64},
}


def mujoco_like(num_rows: int) -> dict[Key, np.ndarray]:
    """Return random TED columns with the shapes of a 17-dimensional MuJoCo task."""
    rng = np.random.default_rng(0)
    steps = rng.normal(size=(num_rows + num_rows // EPISODE_STEPS, 17)).astype(np.float32)
    row = np.arange(num_rows) + np.arange(num_rows) // EPISODE_STEPS
    done = (np.arange(num_rows) % EPISODE_STEPS == EPISODE_STEPS - 1)[:, None]
    none = np.zeros_like(done)
    return {
        ("observation",): steps[row],
        ("action",): rng.normal(size=(num_rows, 6)).astype(np.float32),
        ("done",): none,
        ("terminated",): none,
        ("truncated",): none,
        ("next", "observation"): steps[row + 1],
        ("next", "reward"): rng.normal(size=(num_rows, 1)).astype(np.float32),
        ("next", "done"): done,
        ("next", "terminated"): none,
        ("next", "truncated"): done,
    }


def install(kind: Any, folder: Path, rows: dict[Key, np.ndarray]) -> Path:
    """Write columns as a dataset and return its folder."""
    writer = kind(folder, "bench/rows")
    num_rows = len(rows["action",])
    for start in range(0, num_rows, 50_000):
        writer.write({key: values[start : start + 50_000] for key, values in rows.items()})
    written = writer.finish({})
    write_manifest(folder, Manifest(id="bench/rows", **vars(written)))
    return folder


def ours(folder: Path, batch: int, replacement: bool = True, num_slices: int = 0) -> Any:
    """Return this project's buffer over a dataset."""
    sampler: Any = RandomSampler() if replacement else SamplerWithoutReplacement()
    if num_slices:
        sampler = SliceSampler(num_slices=num_slices)
    return TensorDictReplayBuffer(storage=open_storage(folder), sampler=sampler, batch_size=batch)


def torchrls(folder: Path, batch: int, replacement: bool = True, num_slices: int = 0) -> Any:
    """Return TorchRL's buffer over the same files."""
    from torchrl.data import TensorDictReplayBuffer as Buffer
    from torchrl.data import TensorStorage
    from torchrl.data.replay_buffers import samplers

    sampler: Any = samplers.RandomSampler()
    if not replacement:
        sampler = samplers.SamplerWithoutReplacement()
    if num_slices:
        sampler = samplers.SliceSampler(
            num_slices=num_slices, traj_key="episode", cache_values=True
        )
    storage = TensorStorage(TensorDict.load_memmap(folder))
    return Buffer(storage=storage, sampler=sampler, batch_size=batch)


def bare(folder: Path, batch: int) -> Callable[[], Any]:
    """Return one ``index_select`` of as many bytes as a batch of records has."""
    storage = open_storage(folder)
    records = storage.dataset.manifest.record
    size, num_records = records["record_bytes"], records["num_records"]
    rows = torch.from_numpy(np.fromfile(folder / "rows.memmap", np.uint8)).view(num_records, size)
    pairs = rows.as_strided((num_records - 1, 2 * size), (size, 1))
    index = torch.randint(num_records - 1, (batch,))
    return lambda: pairs.index_select(0, index)


def median_us(call: Callable[[], Any], calls: int) -> float:
    """Return the median microseconds of a call after a warm-up."""
    for _ in range(max(50, calls // 5)):
        call()
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def check(buffer: Any, rows: dict[Key, np.ndarray], consecutive: int) -> None:
    """Compare a batch with the source arrays; slices must be consecutive rows of one episode."""
    batch = buffer.sample()
    index = batch["index"].reshape(len(batch), -1)[:, 0].numpy()
    marked = {("next", "done"), ("next", "truncated")} if consecutive else set()
    for key, values in rows.items():
        if key not in marked:
            assert np.array_equal(batch[key].numpy(), values[index]), key
    if consecutive:
        runs = index.reshape(-1, consecutive)
        assert (np.diff(runs) == 1).all()
        assert (runs[:, 0] // EPISODE_STEPS == runs[:, -1] // EPISODE_STEPS).all()


def measure(folder: Path, rows: dict[Key, np.ndarray], calls: int) -> Iterator[dict[str, Any]]:
    """Yield one record a case."""
    ted = install(TedWriter, folder / "ted", rows)
    compact = install(CompactWriter, folder / "compact", rows)
    for name, case in CASES.items():
        slices = case.get("num_slices", 0)
        buffers = {
            "torchrl": torchrls(ted, **case),
            "ted": ours(ted, **case),
            "compact": ours(compact, **case),
            "torchrl, again": torchrls(ted, **case),
        }
        times = {}
        for label, buffer in buffers.items():
            check(buffer, rows, case["batch"] // slices if slices else 0)
            times[label] = median_us(buffer.sample, calls)
        lowest = min(times["torchrl"], times.pop("torchrl, again"))
        times |= {"torchrl": lowest, "bare gather": median_us(bare(compact, case["batch"]), calls)}
        yield {
            "case": name,
            "microseconds": {label: round(value, 1) for label, value in times.items()},
            "times faster than torchrl": {
                label: round(lowest / times[label], 2) for label in ("ted", "compact")
            },
            "compact / bare gather": round(times["compact"] / times["bare gather"], 2),
        }


def main() -> None:
    """Measure every case and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--calls", type=int, default=500)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")  # TorchRL's own
    rows = mujoco_like(arguments.rows)
    results = []
    print(f"{'case':26}{'torchrl':>10}{'ted':>10}{'compact':>10}{'bare':>10}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        for result in measure(Path(folder), rows, arguments.calls):
            results.append(result)
            names = ("torchrl", "ted", "compact", "bare gather")
            cells = [result["microseconds"][name] for name in names]
            ratios = result["times faster than torchrl"]
            print(
                f"{result['case']:26}" + "".join(f"{cell:10.1f}" for cell in cells),
                f"  ted {ratios['ted']}x, compact {ratios['compact']}x",
                file=sys.stderr,
            )
    document = {"cores": os.cpu_count(), "rows": arguments.rows, "calls": arguments.calls}
    print(json.dumps(document | {"cases": results}, indent=1))


if __name__ == "__main__":
    main()
