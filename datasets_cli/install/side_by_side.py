"""Several datasets at a time: threads of this process fetch and commit, workers convert."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import Any, cast

from datasets_cli.install.options import InstalledDataset
from datasets_cli.progress import Progress, of_dataset, reporting_to
from datasets_cli.progress_bars import Bars, PartOfRun

_SECONDS_A_LOOK = 0.2
_SECONDS_TO_END = 10.0  # for what is brought to the disk; a download ends with its next bytes

Install = Callable[[str, Progress], InstalledDataset]
Outcome = tuple[str, InstalledDataset | BaseException]
"""An id, with what was installed or what was raised."""


class Stopped(BaseException):
    """The run ends; raised in its threads when they tell of something."""


class Screen:
    """What the threads of a run tell, one at a time, until it ends."""

    def __init__(self, progress: Progress) -> None:
        self.lock = threading.RLock()
        self.stopped = threading.Event()
        self._progress = reporting_to(progress)

    @contextmanager
    def until_the_end(self) -> Iterator[None]:
        """At the end, however it comes, stop the threads where they next tell of something."""
        try:
            yield
        finally:
            self.stopped.set()

    @contextmanager
    def part(self, id: str) -> Iterator[Progress]:
        """Give the progress of one dataset, for its thread."""
        bars = self._progress if isinstance(self._progress, Bars) else None
        inner = PartOfRun(id, bars, beside=True) if bars else self._progress
        try:
            yield cast(Progress, _FromThread(self, inner))
        finally:
            if isinstance(inner, PartOfRun):
                with self.lock:
                    inner.__exit__()

    @contextmanager
    def above(self) -> Iterator[None]:
        """Let something be printed while the threads wait with what they tell."""
        with self.lock:
            if isinstance(self._progress, Bars):
                self._progress.clear()
            yield


class _FromThread:
    """The ``Progress`` of one dataset: has the methods of another one, each one at a time."""

    def __init__(self, screen: Screen, progress: Progress) -> None:
        self._screen, self._progress = screen, progress

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._progress, name)

        def tell(*arguments: Any) -> None:
            with self._screen.lock:
                if self._screen.stopped.is_set():
                    raise Stopped
                method(*arguments)

        return tell

    @contextmanager
    def of_dataset(self, id: str) -> Iterator[_FromThread]:
        with of_dataset(self._progress, id) as progress:
            yield _FromThread(self._screen, progress)


class Threads:
    """Threads that install datasets; use it in a ``with`` statement."""

    # At its end those that have stopped are waited for, a moment; what they fetched is kept. They
    # never keep the interpreter from ending.

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._done: SimpleQueue[Outcome] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Threads:
        return self

    def __exit__(self, *_: object) -> None:
        deadline = time.monotonic() + _SECONDS_TO_END
        for thread in self._threads:
            if not thread.is_alive():  # a signal may have come before it began
                continue
            thread.join(max(0.0, deadline - time.monotonic()))

    def outcomes(self, ids: Sequence[str], install: Install, num_threads: int) -> Iterator[Outcome]:
        """Yield the outcome of each dataset as it is done."""
        waiting = deque(ids)
        for _ in range(num_threads):
            # A context of its own each, with the limits that hold here.
            thread = threading.Thread(
                target=copy_context().run,
                args=(self._work, waiting, install),
                name="installs datasets",
                daemon=True,
            )
            self._threads.append(thread)
            thread.start()
        for _ in ids:
            yield self._next()

    def _next(self) -> Outcome:
        while True:
            try:
                return self._done.get(timeout=_SECONDS_A_LOOK)
            except Empty:  # a signal that another thread had is handled here
                continue

    def _work(self, waiting: deque[str], install: Install) -> None:
        while not self._screen.stopped.is_set():
            try:
                id = waiting.popleft()
            except IndexError:
                return
            try:
                with self._screen.part(id) as progress:
                    outcome: InstalledDataset | BaseException = install(id, progress)
            except BaseException as error:  # whoever asks for the outcomes raises it
                outcome = error
            self._done.put((id, outcome))
