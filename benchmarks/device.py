"""Batches of rows in a GPU's memory, beside TorchRL's ``LazyTensorStorage`` there.

    python benchmarks/device.py [--calls 500] [--rows 1000000] [--device cuda]

Prints a table on stderr and JSON on stdout: microseconds until the device is done, every call in
turn, medians and in brackets means. Where there is no GPU it says so and measures nothing;
``--device cpu`` runs the same calls there, which only shows that they run.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from priorities import EXPONENTS, torchrls_sampler
from tables import install, mujoco_like
from tensordict import TensorDict
from timing import Time, compare, shown

from datasets_cli import PrioritizedSampler, SliceSampler, TensorDictReplayBuffer, open_storage
from datasets_cli.store.layouts.compact_writer import CompactWriter
from datasets_cli.store.layouts.ted_writer import TedWriter

CASES = {
    "uniform 256": {"batch": 256},
    "uniform 2048": {"batch": 2048},
    "slices 8x32": {"batch": 256, "num_slices": 8},
    "priorities 256": {"batch": 256},
}
LABELS = ("torchrl", "ted", "compact")


def ours(folder: Path, case: str, device: str, batch: int, num_slices: int = 0) -> Any:
    """Return this project's buffer over a dataset in the device's memory."""
    storage = open_storage(folder, device=device)
    sampler: Any = SliceSampler(num_slices=num_slices) if num_slices else None
    if case.startswith("priorities"):
        sampler = PrioritizedSampler(len(storage), **EXPONENTS, device=device)
    return TensorDictReplayBuffer(storage=storage, sampler=sampler, batch_size=batch)


def torchrls(rows: TensorDict, case: str, device: str, batch: int, num_slices: int = 0) -> Any:
    """Return TorchRL's buffer over the same rows, or None where its trees do not load."""
    from torchrl.data import LazyTensorStorage, replay_buffers
    from torchrl.data import TensorDictReplayBuffer as Buffer

    sampler: Any = replay_buffers.RandomSampler()
    if num_slices:
        sampler = replay_buffers.SliceSampler(
            num_slices=num_slices, traj_key="episode", cache_values=True
        )
    if case.startswith("priorities") and (sampler := torchrls_sampler(len(rows))) is None:
        return None
    storage = LazyTensorStorage(len(rows), device=device)
    buffer = Buffer(storage=storage, sampler=sampler, batch_size=batch)
    buffer.extend(rows)
    return buffer


def call(buffer: Any, case: str, device: str) -> Callable[[], Any]:
    """Return a draw, with an update of priorities if it is by these, until the device is done."""
    losses = itertools.cycle(torch.rand(100, CASES[case]["batch"], device=device).unbind())
    is_cuda = torch.device(device).type == "cuda"

    def run() -> None:
        batch = buffer.sample()
        if case.startswith("priorities"):
            buffer.update_priority(batch["index"], next(losses))
        if is_cuda:
            torch.cuda.synchronize()

    return run


def results(num_rows: int, calls: int, device: str, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield one record a case."""
    rows = mujoco_like(num_rows)
    folders = {
        name: install(kind, folder / name, rows)
        for name, kind in (("ted", TedWriter), ("compact", CompactWriter))
    }
    theirs = TensorDict.load_memmap(folders["ted"])
    for case, options in CASES.items():
        buffers = {"torchrl": torchrls(theirs, case, device, **options)}
        buffers |= {name: ours(path, case, device, **options) for name, path in folders.items()}
        times: dict[str, Time] = compare(
            {name: call(each, case, device) for name, each in buffers.items() if each is not None},
            calls,
        )
        record: dict[str, Any] = {"case": case, "microseconds": shown(times)}
        if "torchrl" in times:
            record["times faster than torchrl"] = {
                name: times["torchrl"].over(times[name]) for name in folders
            }
        yield record


def main() -> None:
    """Measure every case and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    document: dict[str, Any] = {"device": arguments.device, "rows": arguments.rows, "cases": []}
    if arguments.device == "cuda" and not torch.cuda.is_available():
        document["note"] = "There is no GPU here: nothing was measured."
        print(document["note"], file=sys.stderr)
    else:
        warnings.filterwarnings("ignore")  # TorchRL's own
        if arguments.device == "cuda":
            document["device"] = torch.cuda.get_device_name()
        print(f"{'microseconds':20}" + "".join(f"{name:>20}" for name in LABELS), file=sys.stderr)
        with tempfile.TemporaryDirectory() as folder:
            for record in results(arguments.rows, arguments.calls, arguments.device, Path(folder)):
                document["cases"].append(record)
                medians, means = (record["microseconds"][kind] for kind in ("median", "mean"))
                cells = [f"{medians[n]} ({means[n]})" if n in means else "" for n in LABELS]
                print(f"{record['case']:20}" + "".join(f"{c:>20}" for c in cells), file=sys.stderr)
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
