"""Epochs: every item once, in an order that a seed determines."""

from __future__ import annotations

from collections.abc import Sequence, Sized

import numpy as np
import torch

from datasets_cli.errors import EmptyBuffer, WrongSize, WrongState
from datasets_cli.replay.arguments import Numbers, StateDict, whole_number
from datasets_cli.replay.samplers.orders import (
    Order,
    Share,
    listed_order,
    permutation,
    random_words,
    storage_order,
)
from datasets_cli.replay.samplers.protocol import Draw, Info
from datasets_cli.replay.storages.protocol import NO_ROWS, Storage
from datasets_cli.schema.shapes import ItemArray, Items, RowNumbers


class Epochs(Draw):
    """Draws each item once an epoch, in an order that the buffer's generator seeds."""

    # The state is a seed and a position, never the items: it stays small, and can be resumed in the
    # middle of an epoch. Only an epoch that started in TorchRL has no seed; its order is stored.

    kind = "epochs of {}"

    def __init__(self, shuffle: bool = True, whole_batches: bool = False, seed: int = 0) -> None:
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self._whole_batches = whole_batches
        self._position = 0  # items of this epoch that all processes together have drawn
        self._num_items = 0
        self._listed: Items | None = None  # the order of an epoch without a seed
        self._share: Share | None = None  # created by the first draw of an epoch

    def _begin(self, generator: torch.Generator) -> None:
        """Start an epoch: the next one if this one ran out."""
        self.restart()
        self.seed = int(torch.randint(2**62, (), generator=generator))

    def _process(self) -> tuple[int, int]:
        """Return the number of this process, and the number of processes that share an epoch."""
        return 0, 1

    def _share_size(self, remaining: int, process: int, processes: int) -> int:
        """Return the number of remaining items that this process draws."""
        return remaining

    def _order(self, num_items: int, processes: int) -> Order:
        """Return the order of the epoch; the processes take items of it in turn."""
        if self._listed is not None:
            return listed_order(self._listed.numpy())
        return (
            permutation(num_items, self.seed + self.epoch)
            if self.shuffle
            else storage_order(num_items)
        )

    def _max_position(self, num_items: int) -> int:
        """Return the most items of an epoch that all processes together can have drawn."""
        return num_items

    def take(
        self, storage: Storage, items: Sized, count: int, generator: torch.Generator
    ) -> tuple[Items, Info]:
        """Return the next items of this process, fewer at the end of an epoch."""
        share, num_items = self._share, len(items)
        least = count if self._whole_batches else 1
        if (
            share is None
            or self.ran_out
            or self._num_items != num_items
            or (least > 1 and self._num_remaining(share) < least)
        ):
            share = self._next_share(num_items, least, generator)
        # The processes drew equally many of the items since the share was created.
        start = (self._position - share.begin) // share.step
        drawn = share.take(start, count)
        self._position += len(drawn) * share.step
        self.version += 1
        self.ran_out = share.num_items - start - len(drawn) < least
        return drawn, {}

    def ahead(
        self, storage: Storage, batch_size: int, count: int, generator: torch.Generator | None
    ) -> RowNumbers | None:
        """Return the rows of this process for the next full batches, within the epoch."""
        share = self._share
        if share is None or self.ran_out or self._num_items != len(storage):
            return None
        index = share.take((self._position - share.begin) // share.step, count * batch_size)
        whole = len(index) // batch_size * batch_size  # the last batch of an epoch may be short
        return index[:whole] if whole else None

    def advance(self, count: int) -> None:
        """Advance by ``count`` rows, which ``ahead`` returned."""
        share = self._share
        assert share is not None, "rows were taken"
        self._position += count * share.step
        self.version += 1
        self.ran_out = self._num_remaining(share) < (count if self._whole_batches else 1)

    def _next_share(self, num_items: int, least: int, generator: torch.Generator) -> Share:
        """Return the rest of the epoch, or the next epoch if fewer than ``least`` items remain."""
        if not num_items:
            raise EmptyBuffer(NO_ROWS)
        if least > num_items:
            raise WrongSize(
                f"With drop_last a batch of {least} is never complete: only {num_items} can be "
                "drawn.",
                argument="batch_size",
                expected=f"at most {num_items}",
                found=least,
                advice="Pass a smaller batch_size, or drop_last=False.",
            )
        # A new epoch starts if the number of items has changed.
        has_started = bool(self._position) or self._listed is not None
        if not has_started or self.ran_out or self._num_items != num_items:
            self._begin(generator)
            has_started = False
        self._num_items = num_items
        share = self._share or self._new_share(num_items)
        if has_started and self._num_remaining(share) < least:
            self.ran_out = True
            self._begin(generator)
            share = self._new_share(num_items)
        if not share.num_items:
            raise WrongSize(
                f"{num_items} rows are too few for {share.step} processes: this one gets no row.",
                expected=f"at least {share.step} rows",
                found=num_items,
                advice="Use fewer processes, or drop_last=False.",
            )
        self._share = share
        return share

    def _new_share(self, num_items: int) -> Share:
        process, processes = self._process()
        order = self._order(num_items, processes)
        size = self._share_size(max(0, len(order) - self._position), process, processes)
        return Share(order, size, self._position, process, processes)

    def _num_remaining(self, share: Share) -> int:
        return share.num_items - (self._position - share.begin) // share.step

    def restart(self) -> None:
        """Start the epoch again."""
        self._position, self.ran_out, self._share, self._listed = 0, False, None, None
        self.version += 1

    def __getstate__(self) -> StateDict:
        return {**self.__dict__, "_share": None}  # computed again from the seed

    def state_dict(self) -> StateDict:
        """Return the epoch, and the number of items that all processes together have drawn.

        Fewer or more processes can load it: they share the remaining items.
        """
        # `order` is None, or the int64 items of an epoch without a seed.
        return {
            "seed": self.seed,
            "epoch": self.epoch,
            "position": self._position,
            "num_items": self._num_items,
            "ran_out": self.ran_out,
            "order": self._listed,
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Continue in the middle of the epoch of a state."""
        names = "epoch", "position", "num_items"
        epoch, position, num_items = (whole_number(name, state[name], 0) for name in names)
        seed = whole_number("seed", state["seed"])
        order = None if state["order"] is None else _as_order(state["order"], num_items)
        # Values that no epoch reaches would raise in a later draw: reject them here.
        most = self._max_position(num_items) if order is None else len(order)
        for name, value, limit in (
            ("seed", abs(seed), 2**62 - 1),
            ("epoch", epoch, 2**62 - 1),
            ("position", position, most),
        ):
            if value > limit:
                raise WrongState(
                    f"The state of an epoch of {num_items} items has {name}={value}; expected at "
                    f"most {limit}.",
                    key=name,
                    expected=f"at most {limit}",
                    found=value,
                    advice="Continue without this state.",
                )
        self.restart()
        self.seed, self.epoch, self._position, self._num_items = seed, epoch, position, num_items
        self.ran_out, self._listed = bool(state["ran_out"]), order


def _as_order(items: Numbers, num_items: int) -> Items:
    """Return the remaining items of an epoch, or raise ``WrongState``."""
    order = torch.as_tensor(items)
    if not len(order):
        order = order.long()
    is_whole = order.dtype == torch.int64 and order.ndim == 1
    if not is_whole or (len(order) and not 0 <= int(order.min()) <= int(order.max()) < num_items):
        expected = f"int64 [n], each from 0 to {num_items - 1}"
        raise WrongState(
            f"The order in the state does not fit an epoch of {num_items} items: expected "
            f"{expected}.",
            key="order",
            expected=expected,
            found=f"{order.dtype} {list(order.shape)}",
        )
    return order


def listed_epoch(rows: RowNumbers, num_rows: int) -> StateDict:
    """Return the state of an epoch whose remaining rows are ``rows``, in this order."""
    return {
        "kind": Epochs.kind.format("rows"),
        "seed": 0,
        "epoch": 0,
        "position": 0,
        "num_items": num_rows,
        "ran_out": False,
        "order": rows,
    }


def mixed_order(lengths: Sequence[int], counts: Sequence[int], key: int) -> Order:
    """Return a random order of items of several members, with ``counts`` items of each.

        lengths 2 and 5       a0 a1   b0 b1 b2 b3 b4
        counts 2 and 3        a0 a1   b4 b1 b3            slots 0 1   2 3 4, by member
        the order             b4 a1 b3 a0 b1

    A count above a member's length repeats its items; numbers of repetitions differ by one at most.
    As in a permutation, every position costs the same to compute.
    """
    whole_key, *keys = random_words(key, 1 + len(lengths)).tolist()
    whole = permutation(sum(counts), whole_key)
    num_items, ends = np.array(lengths), np.cumsum(counts)
    item_begins = np.cumsum(num_items) - num_items
    slot_begins = ends - np.array(counts)
    # The orders by which a part of a member's items is drawn. A member whose count is a multiple of
    # its length draws all items equally often: any order will do.
    of_members: dict[int, Order] = {
        member: permutation(length, member_key)
        for member, (length, count, member_key) in enumerate(
            zip(lengths, counts, keys, strict=True)
        )
        if length and count % length
    }

    def at(positions: ItemArray) -> ItemArray:
        slots = whole.at(positions)
        member = bounds_reached(slots, ends[:-1])
        # The number of the slot within its member; a second pass repeats the items.
        number = slots - slot_begins.take(member)
        number %= num_items.take(member)
        for which, order in of_members.items():
            here = np.flatnonzero(member == which)
            number[here] = order.at(number[here])
        items: ItemArray = number + item_begins.take(member)
        return items

    return Order(len(whole), at)


FEW_BOUNDS = 32
"""Up to this number of bounds, comparing with all of them takes a fifth of the time of a binary
search, half of whose branches a processor predicts wrongly."""


def bounds_reached(values: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Return the number of ascending bounds at or below each value, of the smallest dtype."""
    if len(bounds) <= FEW_BOUNDS:
        reached: np.ndarray = (values >= bounds[:, None]).sum(0, dtype=np.uint8)
        return reached
    # The smallest dtype, so that sorting by the result can be a radix sort.
    return bounds.searchsorted(values, side="right").astype(np.min_scalar_type(len(bounds)))
