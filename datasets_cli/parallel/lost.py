"""What an executor says where a worker, or all of a cluster, is lost."""

from __future__ import annotations


class LostWorker(Exception):
    """The worker of a task ended before the task did; other tasks are not affected."""

    def __init__(self, how: str, num_workers: int = 1) -> None:
        super().__init__(how, num_workers)
        self.how, self.num_workers = how, num_workers


class LostCluster(Exception):
    """Nothing runs tasks any more; the text says what was lost, and what to do."""
