"""Samplers of every row once an epoch, shared out among processes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.utils.data import get_worker_info

from datasets_cli.errors import UsageError
from datasets_cli.options import takes_fields
from datasets_cli.replay.arguments import whole_number
from datasets_cli.replay.draws.epochs import Epochs
from datasets_cli.replay.draws.rows import SingleRows, of_draw


@dataclass(frozen=True, kw_only=True)
class SharedEpochOptions:
    """How epochs are shared among processes.

    Args:
        num_replicas: ranks; those of ``torch.distributed`` by default, or 1.
        rank: which one this is; that of ``torch.distributed`` by default, or 0.
        shuffle: draw in random order; in storage order otherwise.
        seed: orders the epochs; it must be the same in all processes.
        drop_last: leave out the last rows where the processes do not divide them; otherwise the
            first rows of the epoch fill them up, so that every process draws equally many.
    """

    num_replicas: int | None = None
    rank: int | None = None
    shuffle: bool = True
    seed: int = 0
    drop_last: bool = False


class SharedEpochs(Epochs):
    """Epochs that several processes share, in orders that one seed gives all of them.

        order of the epoch       7 2 9 4 0 8 3 ...      the same in all processes
        process 0 of 2           7   9   0   3
        process 1 of 2             2   4   8

    ``take`` counts what all have drawn: each process's items are ``processes`` places apart.
    """

    kind = "shared epochs of {}"

    def __init__(self, shared: SharedEpochOptions, fills_up: bool = True) -> None:
        super().__init__(shared.shuffle, seed=whole_number("seed", shared.seed))
        rank, replicas = process_rank()
        replicas = replicas if shared.num_replicas is None else shared.num_replicas
        self.num_replicas = whole_number("num_replicas", replicas, 1)
        self.rank = whole_number("rank", rank if shared.rank is None else shared.rank)
        if not 0 <= self.rank < self.num_replicas:
            raise UsageError(f"There is no rank {self.rank} of {self.num_replicas}.")
        self.drop_last = shared.drop_last
        self._fills_up = fills_up

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch; otherwise one follows another."""
        self.epoch = whole_number("epoch", epoch, 0)
        self.restart()

    def _begin(self, generator: torch.Generator) -> None:
        self.epoch += self.ran_out
        self.restart()

    def _process(self) -> tuple[int, int]:
        return share(self.rank, self.num_replicas)

    def _num_mine(self, left: int, process: int, processes: int) -> int:
        # A round gives each process one item; the items left are some whole rounds and a part of
        # one, of which the first processes have a place.
        if self.drop_last:
            return left // processes
        if self._fills_up:
            # The last round is filled up from the beginning of the order, which `Share` repeats;
            # with few rows more than once.
            return -(-left // processes)
        return -(-max(0, left - process) // processes)

    def _most_drawn(self, num_items: int) -> int:
        return 2**62  # rounds that were filled up count, too


class SharedSampler(SingleRows):
    """Draws rows in epochs that several processes share."""

    draw: SharedEpochs
    num_replicas, rank, seed = map(of_draw, ("num_replicas", "rank", "seed"))
    shuffle, drop_last = map(of_draw, ("shuffle", "drop_last"))

    @property
    def epoch(self) -> int:
        """The number of the epoch."""
        return self.draw.epoch

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch; otherwise one follows another."""
        self.draw.set_epoch(epoch)


@dataclass(frozen=True)
class RankOptions(SharedEpochOptions):
    """What ``DistributedSampler`` takes."""

    num_replicas: int | None = None
    rank: int | None = None


class DistributedSampler(SharedSampler):
    """Draws every row once an epoch, shared by processes; some twice, so that all draw as many.

        order of the epoch       7 2 9 4 0 8 3 ...      the same in all processes
        process 0 of 2           7   9   0   3
        process 1 of 2             2   4   8

    Rows are shared by the conventions of ``torch.utils.data.DistributedSampler``. A process here is
    a worker of a ``DataLoader`` on a rank of ``torch.distributed``, where there are such.

    Raises:
        UsageError: the rank is not below the number of replicas.
    """

    @takes_fields(RankOptions)
    def __init__(self, options: RankOptions) -> None:
        super().__init__(SharedEpochs(options))


def share(rank: int, num_replicas: int) -> tuple[int, int]:
    """Return the number of this process among all that read, and how many they are."""
    worker = get_worker_info()
    if worker is None:
        return rank, num_replicas
    # Workers of a rank stand one after the other; every rank has as many.
    return rank * worker.num_workers + worker.id, num_replicas * worker.num_workers


def process_rank() -> tuple[int, int]:
    """Return the rank of this process in ``torch.distributed``, and the number of ranks."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1
