"""Making batches ahead of time, while the caller is busy with the last one."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch

from datasets_cli.replay.arguments import Rows, StateDict
from datasets_cli.replay.draws.protocol import Info

STALE = object()
"""What is made of a draw whose rows have changed since."""


@dataclass(frozen=True)
class Draw:
    """The rows of one batch."""

    # index: row numbers int64 `[B]`.

    index: torch.Tensor
    info: Info
    is_last: bool
    revision: int
    state_before: StateDict
    rows: Rows | None = None


class Prefetch:
    """Keeps a number of batches under way."""

    # Rows are drawn in the calling thread, in order, so the same seed gives the same batches with
    # and without it. One thread gathers, decodes, moves and transforms them, in that order too: a
    # transform never runs twice at once. Nothing is drawn past the end of an epoch before its last
    # batch was taken, so that the next one can be set up.

    def __init__(
        self,
        depth: int,
        size: int,
        draw: Callable[[int], Draw],
        make: Callable[[Draw], Rows],
        give_back: Callable[[Draw], None],
        lock: threading.RLock,
    ) -> None:
        self.size = size
        self._depth = depth
        self._draw = draw
        self._make = make
        self._give_back = give_back
        self._lock = lock
        self._waiting: deque[tuple[Draw, Future[Rows]]] = deque()
        self._pool: ThreadPoolExecutor | None = None

    def take(self, size: int) -> tuple[Draw, Rows]:
        """Return the oldest batch under way, and begin others; or one of another size."""
        # Before one of another size, what is under way must be given back.
        while True:
            with self._lock:
                if size == self.size:
                    self._fill()
                draw, made = self._waiting.popleft() if size == self.size else self._begin(size)
            batch = made.result()
            if batch is not STALE:
                return draw, batch
            with self._lock:
                self._give_back(draw)

    @property
    def num_waiting(self) -> int:
        """Batches under way."""
        return len(self._waiting)

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
        while len(self._waiting) <= self._depth:
            if self._waiting and self._waiting[-1][0].is_last:
                return
            self._waiting.append(self._begin(self.size))

    def _begin(self, size: int) -> tuple[Draw, Future[Rows]]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
        draw = self._draw(size)
        return draw, self._pool.submit(self._make, draw)
