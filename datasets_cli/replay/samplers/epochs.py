"""Epochs: every item of some items once, in an order that a seed gives."""

from __future__ import annotations

from collections.abc import Sequence, Sized

import numpy as np
import torch

from datasets_cli.errors import EmptyBuffer, UsageError
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


class Epochs(Draw):
    """Gives each of some items once, then begins again, in an order by the buffer's generator."""

    # Its state is a seed and a position, never the items, so that it stays small and can be resumed
    # in the middle. Only the order of one that began in TorchRL is given by no seed, and is kept as
    # a whole.

    kind = "epochs of {}"

    def __init__(self, shuffle: bool = True, whole_batches: bool = False, seed: int = 0) -> None:
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self._whole_batches = whole_batches
        self._position = 0  # items of this epoch that all processes together were given
        self._num_items = 0
        self._given: torch.Tensor | None = None  # an order that no seed gives
        self._rest: Share | None = None  # made when an epoch is first drawn from

    def _begin(self, generator: torch.Generator) -> None:
        """Begin an epoch, the next one where this one ran out."""
        self.restart()
        self.seed = int(torch.randint(2**62, (), generator=generator))

    def _process(self) -> tuple[int, int]:
        """Return the number of this process among those that share an epoch, and how many."""
        return 0, 1

    def _num_mine(self, left: int, process: int, processes: int) -> int:
        """Return how many of the items left are this process's."""
        return left

    def _order(self, num_items: int, processes: int) -> Order:
        """Return the order of the epoch, from which the processes take items in turn."""
        if self._given is not None:
            return listed_order(self._given.numpy())
        return (
            permutation(num_items, self.seed + self.epoch)
            if self.shuffle
            else storage_order(num_items)
        )

    def _most_drawn(self, num_items: int) -> int:
        """Return how many items of an epoch all processes together can have been given."""
        return num_items

    def take(
        self, storage: Storage, items: Sized, count: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return this process's next items int64 ``[count]``, fewer at the end of its epoch."""
        rest, num_items = self._rest, len(items)
        least = count if self._whole_batches else 1
        if (
            rest is None
            or self.ran_out
            or self._num_items != num_items
            or (least > 1 and self._left(rest) < least)
        ):
            rest = self._continued(num_items, least, generator)
        # Of the items that all processes together have drawn since, an equal part is this one's.
        start = (self._position - rest.begin) // rest.step
        mine = rest.take(start, count)
        self._position += len(mine) * rest.step
        self.version += 1
        self.ran_out = rest.num_items - start - len(mine) < least
        return mine, {}

    def ahead(
        self, storage: Storage, batch_size: int, count: int, generator: torch.Generator | None
    ) -> torch.Tensor | None:
        """Return this process's rows of the next batches that are whole, within the epoch."""
        rest = self._rest
        if rest is None or self.ran_out or self._num_items != len(storage):
            return None
        index = rest.take((self._position - rest.begin) // rest.step, count * batch_size)
        whole = len(index) // batch_size * batch_size  # the last batch of an epoch may be short
        return index[:whole] if whole else None

    def advance(self, count: int) -> None:
        """Learn that the next ``count`` rows of ``ahead`` were handed out."""
        rest = self._rest
        assert rest is not None, "rows were taken"
        self._position += count * rest.step
        self.version += 1
        self.ran_out = self._left(rest) < (count if self._whole_batches else 1)

    def _continued(self, num_items: int, least: int, generator: torch.Generator) -> Share:
        """Return what is left of the epoch, or of the next where that is less than ``least``."""
        if not num_items:
            raise EmptyBuffer(NO_ROWS)
        if least > num_items:
            raise UsageError(
                f"With drop_last a batch of {least} is never complete: there are only {num_items} "
                "to draw."
            )
        # An epoch begins again where the number of items has changed.
        has_begun = bool(self._position) or self._given is not None
        if not has_begun or self.ran_out or self._num_items != num_items:
            self._begin(generator)
            has_begun = False
        self._num_items = num_items
        rest = self._rest or self._share_out(num_items)
        if has_begun and self._left(rest) < least:
            self.ran_out = True
            self._begin(generator)
            rest = self._share_out(num_items)
        if not rest.num_items:
            raise UsageError(f"{num_items} rows give each of {rest.step} processes none.")
        self._rest = rest
        return rest

    def _share_out(self, num_items: int) -> Share:
        """Return what is left of the epoch, shared out."""
        process, processes = self._process()
        order = self._order(num_items, processes)
        num_mine = self._num_mine(max(0, len(order) - self._position), process, processes)
        return Share(order, num_mine, self._position, process, processes)

    def _left(self, rest: Share) -> int:
        """Return how many items of this process's share are left."""
        return rest.num_items - (self._position - rest.begin) // rest.step

    def restart(self) -> None:
        """Begin the epoch again."""
        self._position, self.ran_out, self._rest, self._given = 0, False, None, None
        self.version += 1

    def __getstate__(self) -> StateDict:
        return {**self.__dict__, "_rest": None}  # the seed gives it again

    def state_dict(self) -> StateDict:
        """Return the epoch and how much of it all processes together have drawn.

        It may be loaded where there are fewer or more of them: they share what is left.
        """
        # `order` is None, or the int64 items of an epoch whose order no seed gives.
        return {
            "seed": self.seed,
            "epoch": self.epoch,
            "position": self._position,
            "num_items": self._num_items,
            "ran_out": self.ran_out,
            "order": self._given,
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Continue in the middle of the epoch that ``state`` names."""
        names = "epoch", "position", "num_items"
        epoch, position, num_items = (whole_number(name, state[name], 0) for name in names)
        seed = whole_number("seed", state["seed"])
        given = None if state["order"] is None else _listed(state["order"], num_items)
        # What the program itself never reaches would raise in a draw, long after it was loaded.
        most = self._most_drawn(num_items) if given is None else len(given)
        if max(abs(seed), epoch) >= 2**62 or position > most:
            raise UsageError(
                f"An epoch of {num_items} items cannot be epoch {epoch} at {position} with the "
                f"seed {seed}. Begin without this state."
            )
        self.restart()
        self.seed, self.epoch, self._position, self._num_items = seed, epoch, position, num_items
        self.ran_out, self._given = bool(state["ran_out"]), given


def _listed(items: Numbers, num_items: int) -> torch.Tensor:
    """Return the items int64 ``[n]`` that are left of an epoch."""
    order = torch.as_tensor(items)
    if not len(order):
        order = order.long()
    is_whole = order.dtype == torch.int64 and order.ndim == 1
    if not is_whole or (len(order) and not 0 <= int(order.min()) <= int(order.max()) < num_items):
        raise UsageError(f"An epoch of {num_items} items has numbers below that, each once.")
    return order


def listed_epoch(rows: torch.Tensor, num_rows: int) -> StateDict:
    """Return the state of an epoch that continues with some rows, in this order."""
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
    """Return a random order of some items of each member: all of them, a part, or several times.

        members of 2 and 5 items     a0 a1   b0 b1 b2 b3 b4
        drawn: 2 and 3               a0 a1   b4 b1 b3          places 0 1   2 3 4, by member
        the order                    b4 a1 b3 a0 b1

    Of two items of a member one is there at most once more than the other. Every place costs the
    same, as in the permutations that this is made of.
    """
    whole_key, *keys = random_words(key, 1 + len(lengths)).tolist()
    whole = permutation(sum(counts), whole_key)
    num_items, ends = np.array(lengths), np.cumsum(counts)
    item_begins = np.cumsum(num_items) - num_items
    place_begins = ends - np.array(counts)
    # Which items are drawn once more than the others; where none is, any order will do.
    of_members: dict[int, Order] = {
        member: permutation(length, member_key)
        for member, (length, count, member_key) in enumerate(
            zip(lengths, counts, keys, strict=True)
        )
        if length and count % length
    }

    def at(places: np.ndarray) -> np.ndarray:
        mixed = whole.at(places)
        member = bounds_reached(mixed, ends[:-1])
        # The number of the place among those of its member, which passes over its items again.
        number = mixed - place_begins.take(member)
        number %= num_items.take(member)
        for which, order in of_members.items():
            here = np.flatnonzero(member == which)
            number[here] = order.at(number[here])
        items: np.ndarray = number + item_begins.take(member)
        return items

    return Order(len(whole), at)


FEW_BOUNDS = 32
"""Up to these, comparing with all of them takes a fifth of the time of a binary search, of which a
processor guesses half of the branches wrongly."""


def bounds_reached(values: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Return how many bounds are not above each value, whole numbers ``[B]`` of a small type."""
    # values: `[B]`.
    # bounds: in ascending order, `[n]`.
    if len(bounds) <= FEW_BOUNDS:
        reached: np.ndarray = (values >= bounds[:, None]).sum(0, dtype=np.uint8)
        return reached
    # The smallest type, so that sorting by it is a radix sort where it can be.
    return bounds.searchsorted(values, side="right").astype(np.min_scalar_type(len(bounds)))
