"""One process writes into a shared ring while others sample it: no batch may have a torn row.

    python benchmarks/sharing.py [--seconds 20] [--samplers 3] [--storage LazyMemmapStorage]

Each row says the same number in every element of every column, so that a row of which one part is
older than another is found. Prints JSON: rows written and batches sampled a second, torn rows, and
how often a read met a write.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from multiprocessing.sharedctypes import Synchronized
from typing import Any

import torch
from tensordict import TensorDict

import datasets_cli

CAPACITY, WRITTEN, BATCH, WIDTH = 10_000, 400, 256, 256


def rows(start: int, count: int) -> TensorDict:
    """Return rows whose every element is the number of the row."""
    number = torch.arange(start, start + count)
    wide = number.unsqueeze(1).expand(count, WIDTH).contiguous()
    columns = {"number": number, "wide": wide, "last": wide.double()}
    return TensorDict(columns, [count])


def torn_rows(batch: TensorDict) -> int:
    """Return how many rows of a batch are of several writes."""
    number = batch["number"].unsqueeze(1)
    return int((batch["wide"] != number).logical_or(batch["last"] != number).any(1).sum())


def sample(buffer: Any, until: float, batches: Synchronized[int], torn: Synchronized[int]) -> None:
    """Sample until a time, and count."""
    torch.set_num_threads(1)
    while time.time() < until:
        found = torn_rows(buffer.sample())
        with batches.get_lock():
            batches.value += 1
            torn.value += found


def stress(storage: str, seconds: float, samplers: int, method: str) -> dict[str, float]:
    """Write for some seconds while others sample; return what happened."""
    context = multiprocessing.get_context(method)
    kind = getattr(datasets_cli, storage)(CAPACITY)
    buffer = datasets_cli.TensorDictReplayBuffer(storage=kind, batch_size=BATCH, shared=True)
    buffer.extend(rows(0, CAPACITY))
    batches, torn = context.Value("q", 0), context.Value("q", 0)
    until = time.time() + seconds + (20 if method == "spawn" else 0)  # a process imports torch
    arguments = (buffer, until, batches, torn)
    processes = [context.Process(target=sample, args=arguments) for _ in range(samplers)]
    for process in processes:
        process.start()
    while not batches.value and time.time() < until:
        time.sleep(0.01)
    begin, first, written = time.time(), batches.value, CAPACITY
    while time.time() < until:
        buffer.extend(rows(written, WRITTEN))
        written += WRITTEN
    elapsed = time.time() - begin
    for process in processes:
        process.join()
    return {
        "seconds": round(elapsed, 1),
        "rows written a second": round((written - CAPACITY) / elapsed),
        "batches a second": round((batches.value - first) / elapsed),
        "batches": batches.value,
        "torn rows": torn.value,
        "exit codes": sum(process.exitcode or 0 for process in processes),
    }


def main() -> None:
    """Run it and print what happened."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--samplers", type=int, default=3)
    parser.add_argument("--storage", default="LazyMemmapStorage")
    parser.add_argument("--method", default="fork", choices=("fork", "spawn"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = stress(given.storage, given.seconds, given.samplers, given.method)
    print(json.dumps(vars(given) | found, indent=1))


if __name__ == "__main__":
    main()
