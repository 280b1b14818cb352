"""Making batches ahead of time, while the caller is busy with the last one."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from datasets_cli.replay.samplers import Info

STALE = object()
"""What is made of a draw whose rows have changed since."""


@dataclass(frozen=True)
class Draw:
    """The rows of one batch.

    Args:
        index: row numbers int64 ``[B]``.
        info: what the sampler says of them.
        is_last: whether they end an epoch.
        revision: that of the storage they were drawn from.
        state_before: what it takes to draw them once more.
    """

    index: torch.Tensor
    info: Info
    is_last: bool
    revision: int
    state_before: dict[str, Any]


class Prefetch:
    """Keeps a number of batches under way.

    Rows are drawn in the calling thread, in order, so the same seed gives the same batches with and
    without it. One thread gathers, decodes, moves and transforms them, in that order too: a
    transform never runs twice at once. Nothing is drawn past the end of an epoch before its last
    batch was taken, so that the next one can be set up.

    Args:
        depth: batches under way.
        draw: draws the rows of a batch.
        make: makes the batch of what was drawn, or returns ``STALE``.
        lock: held while rows are drawn, and by who writes rows.
    """

    def __init__(
        self,
        depth: int,
        draw: Callable[[], Draw],
        make: Callable[[Draw], Any],
        lock: threading.RLock,
    ) -> None:
        self._depth = depth
        self._draw = draw
        self._make = make
        self._lock = lock
        self._waiting: deque[tuple[Draw, Future[Any]]] = deque()
        self._pool: ThreadPoolExecutor | None = None

    def take(self) -> tuple[Draw, Any]:
        """Return the oldest batch under way, and begin others."""
        while True:
            with self._lock:
                self._fill()
                draw, made = self._waiting.popleft()
            batch = made.result()
            if batch is not STALE:
                return draw, batch

    @property
    def oldest(self) -> Draw | None:
        """The rows of the batch that ``take`` returns next, where one is under way."""
        with self._lock:
            return self._waiting[0][0] if self._waiting else None

    def drop(self) -> None:
        """Forget what is under way."""
        with self._lock:
            for _, batch in self._waiting:
                batch.cancel()
            self._waiting.clear()

    def _fill(self) -> None:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
        while len(self._waiting) <= self._depth:
            if self._waiting and self._waiting[-1][0].is_last:
                return
            draw = self._draw()
            self._waiting.append((draw, self._pool.submit(self._make, draw)))
