"""Samplers of every row once an epoch, shared out among processes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import get_worker_info

from datasets_cli.errors import EmptyBuffer, UsageError
from datasets_cli.replay.arguments import StateDict, whole_number
from datasets_cli.replay.orders.order import Order, Share, StorageOrder
from datasets_cli.replay.orders.permutation import permutation
from datasets_cli.replay.samplers.protocol import AheadSampler, Info, KindSampler, check_kind
from datasets_cli.replay.storages.protocol import NO_ROWS, Storage


class SharedEpochs(KindSampler):
    """What samplers have in common whose epochs are shared among processes."""

    def __init__(
        self,
        num_replicas: int | None,
        rank: int | None,
        shuffle: bool,
        seed: int,
        drop_last: bool,
        fills_up: bool = True,
    ) -> None:
        ours, all_ranks = process_rank()
        replicas = all_ranks if num_replicas is None else num_replicas
        self.num_replicas = whole_number("num_replicas", replicas, 1)
        self.rank = whole_number("rank", ours if rank is None else rank)
        if not 0 <= self.rank < self.num_replicas:
            raise UsageError(f"There is no rank {self.rank} of {self.num_replicas}.")
        self.shuffle = shuffle
        self.seed = whole_number("seed", seed)
        self.drop_last = drop_last
        self._fills_up = fills_up
        self.epoch = 0
        self.ran_out = False
        self._done = 0  # items of this epoch that all processes together have drawn
        self._rest: _Rest | None = None  # made once an epoch

    @abstractmethod
    def _order(self, num_items: int, processes: int) -> Order:
        """Return the order of the epoch, from which the processes take items in turn."""

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch; otherwise one follows another by itself."""
        self.epoch = whole_number("epoch", epoch, 0)
        self._done, self.ran_out, self._rest = 0, False, None

    def _take(self, count: int, num_items: int) -> torch.Tensor:
        """Return this process's next items int64 ``[count]``, fewer at the end of its epoch."""
        # The epoch begins again where the number of items has changed. Where this process does not
        # have any in what is left of an epoch, its next one begins.
        if self.ran_out:
            self.set_epoch(self.epoch + 1)
        elif self._rest and self._rest.num_items != num_items:
            self.set_epoch(self.epoch)
        if self._rest is None:
            self._rest = self._share_out(num_items)
        rest = self._rest
        # Of the items that all processes together have drawn since, an equal part is this one's.
        start = (self._done - rest.begin) // rest.processes
        mine = rest.share.take(start, count)
        self._done += len(mine) * rest.processes
        self.ran_out = start + count >= len(rest.share)
        return mine

    def __getstate__(self) -> StateDict:
        return {**self.__dict__, "_rest": None}  # the seed gives it again

    def state_dict(self) -> StateDict:
        """Return the epoch and how much of it all processes together have drawn.

        It may be loaded where there are fewer or more of them: they share what is left.
        """
        return super().state_dict() | {
            "seed": self.seed,
            "epoch": self.epoch,
            "done": self._done,
            "ran_out": self.ran_out,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue in the middle of the epoch that ``state`` names.

        Raises:
            UsageError: a number is out of its range, or it is of another kind of sampler.
        """
        check_kind(self.kind, state)
        seed = whole_number("seed", state["seed"])
        epoch, done = (whole_number(name, state[name], 0) for name in ("epoch", "done"))
        if max(abs(seed), epoch, done) >= 2**62:
            raise UsageError(f"There is no epoch {epoch} at {done} with the seed {seed}.")
        self.seed, self.epoch, self._done = seed, epoch, done
        self.ran_out = bool(state["ran_out"])
        self._rest = None

    def _share_out(self, num_items: int) -> _Rest:
        """Return what is left of the epoch, shared out."""
        if not num_items:
            raise EmptyBuffer(NO_ROWS)
        process, processes = share(self.rank, self.num_replicas)
        order = self._order(num_items, processes)
        left = max(0, len(order) - self._done)
        if self.drop_last:
            num_mine = left // processes
        elif self._fills_up:
            # One more round is filled up from the beginning; with few rows the epoch is repeated.
            num_mine = -(-left // processes)
        else:
            num_mine = -(
                -max(0, left - process) // processes
            )  # this one's places of the last round
            if not num_mine and self._done:  # an epoch that was continued has too few for all
                self.set_epoch(self.epoch + 1)
                return self._share_out(num_items)
        if not num_mine:
            raise UsageError(f"{num_items} rows give each of {processes} processes none.")
        mine = Share(order, num_mine, self._done + process, processes)
        return _Rest(mine, processes, self._done, num_items)


class SharedRows(SharedEpochs, AheadSampler):
    """What samplers have in common that draw rows in shared epochs."""

    def sample(
        self, storage: Storage, batch_size: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return this process's next row numbers int64 ``[B]``, fewer at the end of its epoch.

        The epoch begins again where the number of rows has changed.

        Raises:
            UsageError: there are fewer rows than processes, and none is drawn again.
        """
        return self._take(batch_size, len(storage)), {}

    @property
    def place(self) -> Hashable:
        """Where the epoch stands, and how it was shared out."""
        return self._rest, self._done, self.ran_out

    def ahead(
        self, storage: Storage, batch_size: int, count: int, generator: torch.Generator | None
    ) -> tuple[torch.Tensor, Info] | None:
        """Return this process's row numbers of the next batches; see ``AheadSampler.ahead``."""
        rest = self._rest
        if rest is None or self.ran_out or rest.num_items != len(storage):
            return None
        start = (self._done - rest.begin) // rest.processes
        index = rest.share.take(start, count * batch_size)
        whole = len(index) // batch_size * batch_size  # the last batch of an epoch may be short
        return (index[:whole], {}) if whole else None

    def advance(self, num_rows: int) -> None:
        """Learn that the next rows of ``ahead`` were handed out, a batch of ``num_rows``."""
        rest = self._rest
        assert rest is not None, "rows were taken"
        self._done += num_rows * rest.processes
        self.ran_out = self._done - rest.begin >= len(rest.share) * rest.processes


class DistributedSampler(SharedRows):
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

    def _order(self, num_items: int, processes: int) -> Order:
        if not self.shuffle:
            return StorageOrder(num_items)
        return permutation(num_items, self.seed + self.epoch)


@dataclass(frozen=True, eq=False)
class _Rest:
    """What was left of an epoch when it was shared out."""

    share: Share
    processes: int
    begin: int
    num_items: int


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
