"""What prefetching and loader workers give: batches a second, alone and beside a learner.

    python benchmarks/loaders.py [--frames 5000] [--batches 200]        needs ale-py

Batches of 256 transitions of 11 leaves, and of 32 and 256 stacks of 4 real ALE frames, current and
next, all ``compact``. Each is drawn by ``sample()``, with ``prefetch=2``, and by the workers of
``BatchStream(...).loader(num_workers=...)``: in a loop that does nothing else, and in one that
trains a small network on each batch, of convolutions where there are frames, on all cores. Beside
them the same network on one batch again and again: what the learner could take. Workers start
before the clock does, and their queues are emptied. Prints a table on stderr and JSON on stdout:
the median of three turns, and the share of the learner's rate that each way gives. Batches are
compared with the source.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from operator import truediv
from pathlib import Path
from typing import Any

import numpy as np
import torch
from frames import play
from tables import Rows, install, mujoco_like
from torch import nn

from datasets_cli import BatchStream, FrameStack, TensorDictReplayBuffer, open_storage
from datasets_cli.store.layouts.compact_writer import CompactWriter

WAYS = ("sample()", "prefetch=2", "1 worker", "2 workers")
REPEATED = "one batch repeated"
TURNS = 3
READY = 8  # batches that workers have made while others had their turn, and more


def stream(storage: Any, batch: int, way: str) -> Iterator[Any]:
    """Return endless batches that are made in one of the ways."""
    prefetch = {"prefetch": 2} if way == "prefetch=2" else {}
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=batch, **prefetch)
    if way == REPEATED:
        return itertools.repeat(buffer.sample())
    if "worker" not in way:
        return (buffer.sample() for _ in itertools.repeat(None))
    return iter(BatchStream(buffer, sys.maxsize).loader(num_workers=int(way[0])))


def learner(kind: str) -> Callable[[Any], None]:
    """Return a step of training a small network on a batch."""
    convolutions = [
        *(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU()),
        *(nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(512)),
    ]
    layers = convolutions if kind == "frames" else [nn.LazyLinear(256), nn.ReLU()]
    network = nn.Sequential(*layers, nn.LazyLinear(1))
    optimizer: Any = None

    def step(batch: Any) -> None:
        nonlocal optimizer
        seen = batch["observation"].float() / 255
        loss = (network(seen) - batch["next", "reward"]).square().mean()
        optimizer = optimizer or torch.optim.Adam(network.parameters())  # sizes are known by now
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def batches_per_second(batches: Iterator[Any], count: int, work: Callable[[Any], Any]) -> float:
    """Return how many batches come a second, in a loop that works on each."""
    for _ in range(READY):
        work(next(batches))
    start = time.perf_counter()
    for _ in range(count):
        work(next(batches))
    return count / (time.perf_counter() - start)


def measure(kind: str, storage: Any, batch: int, count: int, rows: Rows) -> dict[str, Any]:
    """Return the batches a second of each way, alone and beside a learner."""
    found: dict[str, Any] = {}
    streams = {way: stream(storage, batch, way) for way in (*WAYS, REPEATED)}
    for batches in streams.values():
        check(next(batches), rows)
    for label, work in {"alone": lambda _: None, "beside a learner": learner(kind)}.items():
        rates: dict[str, list[float]] = {way: [] for way in streams}
        for _ in range(TURNS):
            for way, batches in streams.items():
                rates[way].append(batches_per_second(batches, count, work))
        found[label] = {way: round(statistics.median(rates[way])) for way in WAYS}
    found["share of what the learner takes"] = {
        way: round(statistics.median(map(truediv, rates[way], rates[REPEATED])), 2) for way in WAYS
    }
    return found


def check(batch: Any, rows: Rows) -> None:
    """Compare a batch with the source; of stacks, the newest frame."""
    index = batch["index"].numpy()
    for key, values in rows.items():
        found = batch[key].numpy()
        if found.ndim > values.ndim:
            found = found[:, -1]
        assert np.array_equal(found, values[index]), key


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--frames", type=int, default=5000)
    parser.add_argument("--batches", type=int, default=200)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    tables = {"transitions": mujoco_like(200_000), "frames": play("breakout", arguments.frames)}
    cases = {}
    with tempfile.TemporaryDirectory() as folder:
        for (kind, batch), count in {
            ("transitions", 256): 2 * arguments.batches,
            ("frames", 32): arguments.batches,
            ("frames", 256): arguments.batches // 10,
        }.items():
            path = Path(folder, kind)
            rows = tables[kind]
            if not path.exists():
                install(CompactWriter, path, rows)
            storage: Any = open_storage(path)
            storage = FrameStack(storage, 4) if kind == "frames" else storage
            name = f"{kind}, {batch}"
            cases[name] = measure(kind, storage, batch, count, rows)
            for label, rates in cases[name].items():
                print(f"{name}, {label}: {rates}", file=sys.stderr)
    document = {"cores": os.cpu_count(), "batches a second": cases}
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
