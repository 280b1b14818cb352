"""A shared ring that one process writes while others sample it; a torn row is found."""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.sharedctypes import Synchronized
from typing import Any

import torch
from tensordict import TensorDict

import datasets_cli

CAPACITY, WRITTEN, BATCH, WIDTH = 10_000, 400, 256, 256
LEAST = 20  # batches, however slow the machine is


def shared_rows(start: int, count: int) -> TensorDict:
    """Return rows whose elements are all the number of the row."""
    number = torch.arange(start, start + count)
    wide = number.unsqueeze(1).expand(count, WIDTH).contiguous()
    return TensorDict({"number": number, "wide": wide, "last": wide.double()}, [count])


def torn_rows(batch: TensorDict) -> int:
    number = batch["number"].unsqueeze(1)
    return int((batch["wide"] != number).logical_or(batch["last"] != number).any(1).sum())


def sample_until(
    buffer: Any, stop: Any, batches: Synchronized[int], torn: Synchronized[int]
) -> None:
    torch.set_num_threads(1)
    while not stop.is_set():
        found = torn_rows(buffer.sample())
        with batches.get_lock():
            batches.value += 1
            torn.value += found


def stress(
    storage: str, seconds: float, samplers: int, method: str, writes: bool = True
) -> dict[str, float]:
    """Write for some seconds while other processes sample, and return the counts."""
    context: Any = multiprocessing.get_context(method)
    held = getattr(datasets_cli, storage)(CAPACITY)
    buffer = datasets_cli.TensorDictReplayBuffer(storage=held, batch_size=BATCH, shared=True)
    buffer.extend(shared_rows(0, CAPACITY))
    batches, torn = context.Value("q", 0), context.Value("q", 0)
    stop = context.Event()
    arguments = (buffer, stop, batches, torn)
    processes = [context.Process(target=sample_until, args=arguments) for _ in range(samplers)]
    for process in processes:
        process.start()
    while not batches.value and all(process.is_alive() for process in processes):
        time.sleep(0.01)
    start, first, num_written = time.time(), batches.value, CAPACITY
    while time.time() < start + seconds or (
        batches.value < LEAST and all(process.is_alive() for process in processes)
    ):
        if not writes:
            time.sleep(0.05)
            continue
        buffer.extend(shared_rows(num_written, WRITTEN))
        num_written += WRITTEN
    elapsed = time.time() - start
    stop.set()
    for process in processes:
        process.join()
    return {
        "rows written a second": round((num_written - CAPACITY) / elapsed),
        "batches a second": round((batches.value - first) / elapsed),
        "batches": batches.value,
        "torn rows": torn.value,
        "exit codes": sum(process.exitcode or 0 for process in processes),
    }
