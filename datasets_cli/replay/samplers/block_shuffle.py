"""The sampler for datasets larger than the memory: blocks of rows, shuffled within windows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import StateDict, whole_number
from datasets_cli.replay.orders.blocks import BlockOrder, SharedParts, WindowOrder
from datasets_cli.replay.orders.order import Order, StorageOrder
from datasets_cli.replay.orders.permutation import random_words
from datasets_cli.replay.samplers.distributed import SharedEpochs
from datasets_cli.replay.samplers.epoch import RowEpochs
from datasets_cli.replay.samplers.protocol import check_kind

MOST_PARTS = 2**20
"""Processes that share an epoch; a state that says more is no state of ours."""


class BlockShuffleSampler(SharedEpochs, RowEpochs):
    """Draws every row once an epoch, from some blocks of consecutive rows at a time.

    The blocks come in random order, and rows are shuffled within a window of some blocks. So the
    disk is read in long runs where ``SamplerWithoutReplacement`` reads scattered rows, and the
    rows of a batch are of few blocks, and related as neighbours are.

    The epoch is shared among ranks and loader workers as by ``DistributedSampler``, except that
    each reads blocks of its own.

    Args:
        block_len: consecutive rows in a block.
        window: blocks in a window.
        num_replicas: ranks; those of ``torch.distributed`` by default, or 1.
        rank: which one this is; that of ``torch.distributed`` by default, or 0.
        shuffle: draw in random order; otherwise each process draws a run of rows in storage order.
        seed: orders the epochs; it must be the same in all processes.
        drop_last: leave out the last rows where the processes do not divide them; otherwise the
            first rows of the epoch fill them up, so that every process draws equally many.

    Raises:
        UsageError: the rank is not below the number of replicas, or a block or a window is empty.
    """

    kind = "shared epochs of blocks"

    def __init__(
        self,
        block_len: int = 1024,
        window: int = 64,
        *,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        super().__init__(num_replicas, rank, shuffle, seed, drop_last)
        self.block_len = whole_number("block_len", block_len, 1)
        self.window = whole_number("window", window, 1)
        self._parts: int | None = None  # processes that the epoch began with

    def __repr__(self) -> str:
        return f"{type(self).__name__}(block_len={self.block_len}, window={self.window})"

    def _restart(self) -> None:
        super()._restart()
        self._parts = None

    def state_dict(self) -> StateDict:
        """Return the epoch and how much of it all processes together have drawn.

        It may be loaded where there are fewer or more of them: they share what is left.
        """
        sizes = {"block_len": self.block_len, "window": self.window, "parts": self._parts}
        return super().state_dict() | sizes

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue in the middle of the epoch that ``state`` names.

        Raises:
            UsageError: a number is out of its range, or the blocks or windows have other sizes.
        """
        check_kind(self.kind, state)
        theirs = state["block_len"], state["window"]
        if theirs != (self.block_len, self.window):
            raise UsageError(
                f"The state is of windows of {theirs[1]} blocks of {theirs[0]} rows, not of "
                f"{self.window} of {self.block_len}. Make a sampler of these sizes for it."
            )
        parts = state["parts"]
        parts = None if parts is None else whole_number("parts", parts, 1)
        if parts is not None and parts > MOST_PARTS:
            raise UsageError(f"An epoch has at most {MOST_PARTS} processes, not {parts}.")
        super().load_state_dict(state)
        self._parts = parts

    def _order(self, num_items: int, processes: int) -> Order:
        self._parts = parts = self._parts or processes
        num_each = num_items // parts if self.drop_last else -(-num_items // parts)
        if not self.shuffle:
            return SharedParts(StorageOrder(num_items), [StorageOrder(num_each)] * parts)
        blocks, *keys = random_words(self.seed + self.epoch, 1 + parts).tolist()
        window_len = self.window * self.block_len
        within = [WindowOrder(num_each, window_len, key) for key in keys]
        return SharedParts(BlockOrder(num_items, self.block_len, blocks), within)
