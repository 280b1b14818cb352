"""Samplers of every row once an epoch, shared out among processes."""

from __future__ import annotations

import torch
from torch.utils.data import get_worker_info

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import whole_number
from datasets_cli.replay.draws.epoch import Epochs, RowEpochs


class SharedEpochs(Epochs):
    """Epochs that several processes share, in orders that one seed gives all of them."""

    def __init__(
        self,
        num_replicas: int | None,
        rank: int | None,
        shuffle: bool,
        seed: int,
        drop_last: bool,
        fills_up: bool = True,
    ) -> None:
        super().__init__(shuffle, seed=whole_number("seed", seed))
        ours, all_ranks = process_rank()
        replicas = all_ranks if num_replicas is None else num_replicas
        self.num_replicas = whole_number("num_replicas", replicas, 1)
        self.rank = whole_number("rank", ours if rank is None else rank)
        if not 0 <= self.rank < self.num_replicas:
            raise UsageError(f"There is no rank {self.rank} of {self.num_replicas}.")
        self.drop_last = drop_last
        self._fills_up = fills_up

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch; otherwise one follows another by itself."""
        self.epoch = whole_number("epoch", epoch, 0)
        self._restart()

    def _begin(self, generator: torch.Generator) -> None:
        self.epoch += self.ran_out
        self._restart()

    def _process(self) -> tuple[int, int]:
        return share(self.rank, self.num_replicas)

    def _num_mine(self, left: int, process: int, processes: int) -> int:
        if self.drop_last:
            return left // processes
        if self._fills_up:
            # One more round is filled up from the beginning; with few rows the epoch is repeated.
            return -(-left // processes)
        return -(-max(0, left - process) // processes)  # this one's places of the last round


class DistributedSampler(SharedEpochs, RowEpochs):
    """Draws every row once an epoch, shared out among processes.

        order of the epoch       7 2 9 4 0 8 3 ...      the same in all processes
        process 0 of 2           7   9   0   3
        process 1 of 2             2   4   8

    Rows are shared by the conventions of ``torch.utils.data.DistributedSampler``. A process here is
    a worker of a ``DataLoader`` on a rank of ``torch.distributed``, where there are such.

    Args:
        num_replicas: ranks; those of ``torch.distributed`` by default, or 1.
        rank: which one this is; that of ``torch.distributed`` by default, or 0.
        shuffle: draw in random order; in storage order otherwise.
        seed: orders the epochs; it must be the same in all processes.
        drop_last: leave out the last rows where the processes do not divide them; otherwise the
            first rows of the epoch fill them up, so that every process draws equally many.

    Raises:
        UsageError: the rank is not below the number of replicas.
    """

    kind = "shared epochs of rows"

    def __init__(
        self,
        num_replicas: int | None = None,
        rank: int | None = None,
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        super().__init__(num_replicas, rank, shuffle, seed, drop_last)


def share(rank: int, num_replicas: int) -> tuple[int, int]:
    """Return the number of this process among all that read, and how many they are."""
    worker = get_worker_info()
    if worker is None:
        return rank, num_replicas
    return rank * worker.num_workers + worker.id, num_replicas * worker.num_workers


def process_rank() -> tuple[int, int]:
    """Return the rank of this process in ``torch.distributed``, and the number of ranks."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1
