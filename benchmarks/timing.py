"""Timing side by side: every call in turn, so that noise falls on all alike."""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROUNDS = 10
KINDS = ("median", "mean")


@dataclass(frozen=True)
class Time:
    """How long a call takes, in microseconds.

    A buffer that reads ahead makes several batches at once and hands them out one by one: the
    median is of a batch that is there already, and the mean has its part of the block.

    Args:
        median: of all calls.
        mean: of all calls.
    """

    median: float
    mean: float

    def divided(self, number: float, digits: int = 1) -> Time:
        """Return both in another unit, or as parts of a call, rounded."""
        return Time(round(self.median / number, digits), round(self.mean / number, digits))

    def plus(self, other: Time) -> Time:
        """Return the time of both."""
        return Time(self.median + other.median, self.mean + other.mean)

    def over(self, other: Time) -> dict[str, float]:
        """Return how many times another fits into this one, by medians and by means."""
        return {kind: round(getattr(self, kind) / getattr(other, kind), 2) for kind in KINDS}


def compare(calls: Mapping[str, Callable[[], Any]], repeat: int) -> dict[str, Time]:
    """Return the time of each call; see ``seconds_in_turn``."""
    return {
        name: Time(statistics.median(values) * 1e6, statistics.fmean(values) * 1e6)
        for name, values in seconds_in_turn(calls, repeat).items()
    }


def seconds_in_turn(calls: Mapping[str, Callable[[], Any]], repeat: int) -> dict[str, list[float]]:
    """Return the seconds of all calls, over rounds in which every one has its turn.

    Args:
        calls: what to time, by name.
        repeat: timed calls of each, after some that warm up in every round.
    """
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            for _ in range(max(3, repeat // ROUNDS // 5)):
                call()
            for _ in range(max(1, repeat // ROUNDS)):
                start = time.perf_counter()
                call()
                seconds[name].append(time.perf_counter() - start)
    return seconds


def lower(first: Time, second: Time) -> Time:
    """Return the lower median and the lower mean of a call that was timed twice."""
    return Time(min(first.median, second.median), min(first.mean, second.mean))


def shown(times: Mapping[str, Time], digits: int = 1) -> dict[str, dict[str, float]]:
    """Return times as JSON has them: medians and means, each by name."""
    return {
        kind: {name: round(getattr(time, kind), digits) for name, time in times.items()}
        for kind in KINDS
    }


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
    """Return batches a second from files that are not in the page cache, mapped again each time.

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
