"""Prioritised sampling: draw a batch by priority, then give its rows new ones.

    python benchmarks/priorities.py [--calls 300] [--rows 1000000 10000000]

Prints a table on stderr and JSON on stdout: microseconds, every call in turn, medians and in
brackets means. "buffer"
is ``sample()`` of a buffer over a dataset of 11 leaves, as a user makes it, and ``update_priority``
of what it gave; "sampler" is the sampler alone. Weights are compared with the formula.

TorchRL is measured in turn with ours where the compiled part of its wheel, its trees, loads. That
of 0.14.1 does not with torch 2.13; then figures stand there that were measured on 2 cores before.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tables import install, mujoco_like
from tensordict import TensorDict
from timing import compare, shown

from datasets_cli import PrioritizedSampler, TensorDictReplayBuffer, open_storage
from datasets_cli.store.layouts.compact_writer import CompactWriter
from datasets_cli.store.layouts.ted_writer import TedWriter

Calls = dict[str, Callable[[], Any]]
EXPONENTS = {"alpha": 0.7, "beta": 0.5}
SMALL, LARGE = 256, 65_536
BEFORE = {  # microseconds, sample and update
    ("buffer", 1_000_000, SMALL): "501-640 together",
    ("sampler", 1_000_000, LARGE): "8700 + 4400",
    ("sampler", 10_000_000, LARGE): "17400 + 14400",
}
NOTE = (
    "The compiled trees of TorchRL's wheel do not load with this torch: "
    "its figures were measured on 2 cores before."
)


class Rows:
    """A storage of which a sampler asks the length alone."""

    ndim = 1

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count


def torchrls_sampler(num_rows: int) -> Any:
    """Return TorchRL's sampler, or None where its trees do not load."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torchrl.data.replay_buffers.samplers import PrioritizedSampler as Sampler

        try:
            return Sampler(num_rows, **EXPONENTS)
        except RuntimeError:
            return None


def samplers(num_rows: int) -> dict[str, Any]:
    """Return the samplers there are, each with the same priority of its own for every row."""
    priority = torch.rand(num_rows)
    found = {
        "ours": PrioritizedSampler(num_rows, **EXPONENTS),
        "torchrl": torchrls_sampler(num_rows),
    }
    found = {name: sampler for name, sampler in found.items() if sampler is not None}
    for sampler in found.values():
        sampler.update_priority(torch.arange(num_rows), priority)
    ours: Any = found["ours"]
    index, info = ours.sample(Rows(num_rows), 1000, torch.default_generator)
    power = (priority.double().numpy() + ours.eps) ** ours.alpha
    right = (power[index.numpy()] / power.min()) ** -ours.beta
    np.testing.assert_allclose(info["priority_weight",].numpy(), right, rtol=1e-5)
    return found


def updates(sampler: Any, draw: Callable[[], torch.Tensor]) -> Callable[[], Any]:
    """Return a call that gives other rows other priorities each time."""
    rows = [draw() for _ in range(10)]
    pairs = itertools.cycle([(row, torch.rand(len(row))) for row in rows])
    return lambda: sampler.update_priority(*next(pairs))


def alone(num_rows: int, batch: int) -> Calls:
    """Return what samplers do."""
    rows, calls = Rows(num_rows), {}
    for name, sampler in samplers(num_rows).items():
        seed = (torch.default_generator,) if name == "ours" else ()
        draw = lambda sampler=sampler, seed=seed: sampler.sample(rows, batch, *seed)  # noqa: E731
        calls[f"{name} sample"] = draw
        calls[f"{name} update"] = updates(sampler, lambda draw=draw: draw()[0])
    return calls


def in_a_buffer(num_rows: int, folder: Path) -> Calls:
    """Return what a learner does with a dataset."""
    rows, found = mujoco_like(num_rows), samplers(num_rows)
    storage = open_storage(install(CompactWriter, folder / "compact", rows))
    buffers = {"ours": TensorDictReplayBuffer(storage=storage, sampler=found["ours"])}
    if "torchrl" in found:
        from torchrl.data import TensorDictReplayBuffer as Buffer
        from torchrl.data import TensorStorage

        ted = TensorDict.load_memmap(install(TedWriter, folder / "ted", rows))
        buffers["torchrl"] = Buffer(
            storage=TensorStorage(ted), sampler=found["torchrl"], batch_size=SMALL
        )
    calls: Calls = {}
    for name, buffer in buffers.items():
        calls[f"{name} sample"] = lambda buffer=buffer: buffer.sample(SMALL)
        calls[f"{name} update"] = updates(
            buffer, lambda buffer=buffer: buffer.sample(SMALL)["index"]
        )
    return calls


def measure(row_counts: list[int], num_calls: int, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield one record a case."""
    cases = [(name, count, SMALL) for name in ("buffer", "sampler") for count in row_counts[:1]]
    cases += [("sampler", count, LARGE) for count in row_counts]
    for name, count, batch in cases:
        calls = in_a_buffer(count, folder) if name == "buffer" else alone(count, batch)
        times = compare(calls, num_calls if batch == SMALL else max(20, num_calls // 8))
        record: dict[str, Any] = {"case": name, "rows": count, "batch": batch}
        record["microseconds"] = shown(times)
        if "torchrl sample" in times:
            theirs, ours = (
                times[f"{who} sample"].plus(times[f"{who} update"]) for who in ("torchrl", "ours")
            )
            record["times faster than torchrl"] = theirs.over(ours)
        else:
            record["torchrl before"] = BEFORE.get((name, count, batch))
        yield record


def cell(record: dict[str, Any], who: str) -> str:
    """Return what the table says of a library: sample and update, medians and means."""
    medians, means = (record["microseconds"][kind] for kind in ("median", "mean"))
    calls = [f"{who} sample", f"{who} update"]
    if calls[0] not in medians:
        return record["torchrl before"] or ""
    return " + ".join(f"{medians[call]:.0f} ({means[call]:.0f})" for call in calls)


def main() -> None:
    """Measure every case and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    arguments = parser.parse_args()
    document: dict[str, Any] = {"cores": os.cpu_count(), "calls": arguments.calls, "cases": []}
    if torchrls_sampler(1) is None:
        document["note"] = NOTE
        print(NOTE, file=sys.stderr)
    print(f"{'':36}{'ours':>30}{'torchrl':>30}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        for record in measure(arguments.rows, arguments.calls, Path(folder)):
            document["cases"].append(record)
            ours, theirs = (cell(record, who) for who in ("ours", "torchrl"))
            name = f"{record['case']} {record['batch']:,} of {record['rows']:,}"
            print(f"{name:36}{ours:>30}{theirs:>30}", file=sys.stderr)
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
