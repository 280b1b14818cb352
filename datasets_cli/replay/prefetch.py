"""Making batches ahead of time, while the caller is busy with the last one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from datasets_cli.replay.samplers import Info


@dataclass(frozen=True)
class Draw:
    """The rows of one batch.

    Args:
        index: row numbers int64 ``[B]``.
        info: what the sampler says of them.
        is_last: whether they end an epoch.
        state_before: what it takes to draw them once more; None where nobody will ask.
    """

    index: torch.Tensor
    info: Info
    is_last: bool
    state_before: dict[str, Any] | None = None


class Prefetch:
    """Keeps a number of batches under way.

    Rows are drawn in the calling thread, in order, so the same seed gives the same batches with and
    without it. One thread gathers, decodes, moves and transforms them, in that order too: a
    transform never runs twice at once.

    Args:
        depth: batches under way.
        draw: draws the rows of a batch.
        make: makes the batch of the rows and the information that were drawn.
    """

    def __init__(
        self, depth: int, draw: Callable[[], Draw], make: Callable[[torch.Tensor, Info], Any]
    ) -> None:
        self._depth = depth
        self._draw = draw
        self._make = make
        self._waiting: deque[tuple[Draw, Future[Any]]] = deque()
        self._pool: ThreadPoolExecutor | None = None

    def take(self) -> tuple[Draw, Any]:
        """Return the oldest batch under way, and begin another one."""
        while len(self._waiting) <= self._depth:
            self._begin()
        draw, batch = self._waiting.popleft()
        return draw, batch.result()

    @property
    def oldest(self) -> Draw | None:
        """The rows of the batch that ``take`` returns next, where one is under way."""
        return self._waiting[0][0] if self._waiting else None

    def drop(self) -> None:
        """Forget what is under way."""
        for _, batch in self._waiting:
            batch.cancel()
        self._waiting.clear()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_waiting": deque(), "_pool": None}

    def _begin(self) -> None:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
        draw = self._draw()
        self._waiting.append((draw, self._pool.submit(self._make, draw.index, draw.info)))
