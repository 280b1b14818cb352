"""An epoch: every item of some items once, in an order that a seed gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from datasets_cli.errors import EmptyBuffer, UsageError
from datasets_cli.replay.arguments import StateDict, whole_number
from datasets_cli.replay.orders.order import ListedOrder, Order, Share, StorageOrder
from datasets_cli.replay.orders.permutation import permutation
from datasets_cli.replay.samplers.protocol import KindSampler, check_kind
from datasets_cli.replay.storages.protocol import NO_ROWS


class Epoch:
    """Gives each of some items once, then begins again."""

    # Its state is a seed and a position, never the items, so that it stays small and can be resumed
    # in the middle. Only the order of one that began in TorchRL is given by no seed, and is kept as
    # a whole.

    def __init__(self, *, drop_last: bool, shuffle: bool) -> None:
        self.drop_last = drop_last
        self.shuffle = shuffle
        self.ran_out = False
        self._seed = 0
        self._position = 0
        self._num_items = 0
        self._given: torch.Tensor | None = None  # an order that no seed gives
        self._items: Share | None = None  # all of the epoch; made when it is first drawn from

    def take(self, count: int, num_items: int, generator: torch.Generator) -> torch.Tensor:
        """Return the next items int64 ``[count]``, or fewer at the end of the epoch."""
        # Another epoch begins where the number of items has changed, and with `drop_last` where
        # fewer are left than asked for, as after smaller shares.
        if not num_items:
            raise EmptyBuffer(NO_ROWS)
        if self.drop_last and count > num_items:
            raise UsageError(
                f"With drop_last a batch of {count} is never complete: there are only {num_items} "
                "to draw."
            )
        has_begun = self._position or self._given is not None
        left = (num_items if self._given is None else len(self._given)) - self._position
        least = count if self.drop_last else 1
        if not has_begun or self.ran_out or self._num_items != num_items or left < least:
            self.begin()
            self._seed = int(torch.randint(2**62, (), generator=generator))
            self._num_items = left = num_items
        if self._items is None:
            order = self._order()
            self._items = Share(order, len(order))
        items = self._items.take(self._position, count)
        self.advance(len(items), least)
        return items

    @property
    def place(self) -> tuple[Share | None, int]:
        """Where it stands: in which order, at which position."""
        return self._items, self._position

    def ahead(self, count: int, num_items: int) -> torch.Tensor:
        """Return the next items int64 ``[count]`` and stay; fewer where another epoch follows."""
        if self._items is None or self.ran_out or self._num_items != num_items:
            return torch.empty(0, dtype=torch.int64)
        return self._items.take(self._position, count)

    def advance(self, count: int, least: int) -> None:
        """Move on by some items that were taken; it has run out where fewer than ``least`` stay."""
        assert self._items is not None, "items were taken"
        self._position += count
        self.ran_out = len(self._items) - self._position < least

    def begin(self) -> None:
        """Begin another epoch with the next share."""
        self._position, self.ran_out, self._items, self._given = 0, False, None, None

    def _order(self) -> Order:
        if self._given is not None:
            return ListedOrder(self._given.numpy())
        if not self.shuffle:
            return StorageOrder(self._num_items)
        return permutation(self._num_items, self._seed)

    def __getstate__(self) -> StateDict:
        return {**self.__dict__, "_items": None}  # the seed gives them again

    def state_dict(self) -> StateDict:
        """Return the seed of the epoch, and how many of how many items were given."""
        # `order` is None, or the int64 items of an epoch whose order no seed gives.
        return {
            "seed": self._seed,
            "position": self._position,
            "num_items": self._num_items,
            "ran_out": self.ran_out,
            "order": self._given,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state`` was taken."""
        num_items = whole_number("num_items", state["num_items"], 0)
        given = None if state["order"] is None else _listed(state["order"], num_items)
        seed = whole_number("seed", state["seed"], 0)
        position = whole_number("position", state["position"], 0)
        # What the program itself never reaches would raise in a draw, long after it was loaded.
        if seed >= 2**63 or position > (num_items if given is None else len(given)):
            raise UsageError(
                f"An epoch of {num_items} items cannot be at {position} with the seed {seed}."
            )
        self._seed, self._position, self._num_items = seed, position, num_items
        self.ran_out = bool(state["ran_out"])
        self._given, self._items = given, None


class EpochSampler(KindSampler):
    """What samplers without replacement have in common: an epoch, and how far it is."""

    def __init__(self, drop_last: bool, shuffle: bool) -> None:
        self._epoch = Epoch(drop_last=drop_last, shuffle=shuffle)

    def on_clear(self) -> None:
        """Begin another epoch."""
        self._epoch.begin()
        self.ran_out = False

    def state_dict(self) -> StateDict:
        """Return the epoch's seed and position."""
        return super().state_dict() | self._epoch.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue in the middle of the epoch that ``state`` names."""
        check_kind(self.kind, state)
        self._epoch.load_state_dict(state)
        self.ran_out = self._epoch.ran_out

    def _take(self, count: int, num_items: int, generator: torch.Generator) -> torch.Tensor:
        """Return the next items int64 ``[count]`` of the epoch; see ``Epoch.take``."""
        items = self._epoch.take(count, num_items, generator)
        self.ran_out = self._epoch.ran_out
        return items


def _listed(items: Any, num_items: int) -> torch.Tensor:
    """Return the items int64 ``[n]`` that are left of an epoch."""
    order = torch.as_tensor(items)
    if not len(order):
        order = order.long()
    is_whole = order.dtype == torch.int64 and order.ndim == 1
    if not is_whole or (len(order) and not 0 <= int(order.min()) <= int(order.max()) < num_items):
        raise UsageError(f"An epoch of {num_items} items has numbers below that, each once.")
    return order


def given_epoch(items: torch.Tensor, num_items: int) -> StateDict:
    """Return the state of an epoch that continues with some items, in this order."""
    return {"seed": 0, "position": 0, "num_items": num_items, "ran_out": False, "order": items}
