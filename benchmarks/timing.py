"""Timing side by side: every call in turn, so that noise falls on all alike."""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROUNDS = 10


def compare(calls: Mapping[str, Callable[[], Any]], repeat: int) -> dict[str, float]:
    """Return the median microseconds of each call, over rounds in which every one has its turn.

    Args:
        calls: what to time, by name.
        repeat: timed calls of each, after some that warm up in every round.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            for _ in range(max(3, repeat // ROUNDS // 5)):
                call()
            for _ in range(max(1, repeat // ROUNDS)):
                start = time.perf_counter()
                call()
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) * 1e6 for name, values in times.items()}


def forget(folder: Path) -> None:
    """Drop the files of a folder from the page cache; nobody may have them mapped."""
    gc.collect()  # buffers that refer to themselves keep their mappings until then
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cold_per_second(
    make: Callable[[], Callable[[], Any]], folder: Path, batches: int = 20
) -> float:
    """Return batches a second from files that are not in the page cache, each time mapped anew.

    Args:
        make: opens the files and returns what draws a batch.
        folder: where the files are.
        batches: draws after every emptying of the cache.
    """
    rates = []
    for _ in range(5):
        forget(folder)
        draw = make()
        start = time.perf_counter()
        for _ in range(batches):
            draw()
        rates.append(batches / (time.perf_counter() - start))
        del draw
    return round(statistics.median(rates), 1)
