"""Where parallel work runs: processes of this machine, or an executor of the caller's."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, replace

from datasets_cli.errors import UsageError


@dataclass(frozen=True)
class Workers:
    """Who does parallel work; nothing is started before ``pool``.

    Args:
        num_workers: processes; all cores where None, the calling process where 0.
        executor: where to run instead; the caller ends it.

    Raises:
        UsageError: a negative number.
    """

    num_workers: int | None = 0
    executor: Executor | None = None

    def __post_init__(self) -> None:
        if self.num_workers is not None and self.num_workers < 0:
            raise UsageError(f"{self.num_workers} workers cannot work; expected 0 or more.")

    def at_most(self, num_tasks: int) -> Workers:
        """Return workers of whom none has nothing to do: no process starts for a single task."""
        if self.num_workers is None:
            return self if num_tasks > 1 else replace(self, num_workers=0)
        return replace(self, num_workers=min(self.num_workers, num_tasks))

    @property
    def end_with_the_call(self) -> bool:
        """Whether no task runs any more when ``pool`` has ended, after an error too."""
        return self.executor is None

    @property
    def may_be_left_out(self) -> bool:
        """Whether small work is done in the calling process: nobody asked for workers."""
        return self.num_workers is None

    def sharing(self, pool: Executor) -> Workers:
        """Return the same workers as others use them too, by the pool that they have."""
        return Workers(self.num_workers, pool)

    @contextmanager
    def pool(self) -> Iterator[Executor]:
        """Give the executor; one that starts here ends here, at once after an error."""
        if self.executor is not None:
            yield self.executor
            return
        # Imported late: to describe workers is on the way to commands that start none.
        from datasets_cli.parallel.tasks import local_pool

        with local_pool(self.num_workers) as pool:
            yield pool


IN_THIS_PROCESS = Workers()
