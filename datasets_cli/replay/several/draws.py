"""The draws of a mixture: a member by its weight, then an item of it; and epochs."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Literal

import numpy as np
import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import StateDict
from datasets_cli.replay.draws.distributed import SharedEpochOptions, SharedEpochs
from datasets_cli.replay.draws.draw import IndependentDraw, SliceBegins
from datasets_cli.replay.draws.mixed_order import bounds_reached, mixed_order
from datasets_cli.replay.draws.orders import Order
from datasets_cli.replay.draws.protocol import Info
from datasets_cli.replay.draws.windows import SliceWindows
from datasets_cli.replay.several.storage import MixtureStorage
from datasets_cli.replay.several.weights import MixtureWeights
from datasets_cli.replay.storages.protocol import Storage

EpochEnd = Literal["all", "first", "last"]
"""When an epoch ends: every item once, or when the first or the last member has none left."""


class Weighted(IndependentDraw):
    """Draws a member by its weight, then an item of it uniformly, with replacement."""

    kind = "weighted {}"

    def __init__(self, weights: MixtureWeights) -> None:
        self.weights = weights

    def __repr__(self) -> str:
        return f"Weighted({self.weights.state()!r})"

    def take(
        self, storage: Storage, items: Sized, count: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return items int64 ``[count]``."""
        return self._drawn(storage, items, _uniform(count, 2, generator)), {}

    def take_slices(
        self, storage: Storage, windows: SliceWindows, count: int, generator: torch.Generator
    ) -> tuple[SliceBegins, Info]:
        """Return where ``count`` slices begin."""
        uniform = _uniform(count, 3, generator)  # the third says where a slice is in its trajectory
        return windows.begins(self._drawn(storage, windows, uniform), uniform[:, 2]), {}

    def _drawn(self, storage: Storage, items: Sized, uniform: torch.Tensor) -> torch.Tensor:
        """Return items int64 ``[B]``: the first number says the member, the second its item."""
        mixture = mixture_of(storage)
        shares = self.weights.shares(mixture)
        bounds, numbers = item_bounds(mixture, items, shares).numpy(), uniform.numpy()
        member = draw_members(shares.numpy(), numbers[:, 0])
        # A product below the member's number of items: cut to a whole number it is one of them.
        item = numbers[:, 1] * np.diff(bounds).take(member)
        return torch.from_numpy(item.astype(np.int64) + bounds.take(member))

    def state_dict(self) -> StateDict:
        """Return the weights: what is drawn next is in the generator's state."""
        return {"weights": self.weights.state()}

    def load_state_dict(self, state: StateDict) -> None:
        """Continue where ``state`` was taken."""
        self.weights.check_state(state)


class MixtureEpochs(SharedEpochs):
    """Epochs of rows or trajectories of members, shared among processes."""

    kind = "epochs of {} of a mixture"

    def __init__(self, weights: MixtureWeights, end: EpochEnd, shared: SharedEpochOptions) -> None:
        super().__init__(shared, fills_up=False)
        self.weights = weights
        self.end = end
        self._of: tuple[list[int], torch.Tensor] = [], torch.empty(0)  # items, shares of members

    def __repr__(self) -> str:
        return f"MixtureEpochs({self.weights.state()!r}, epoch={self.end!r})"

    def take(
        self, storage: Storage, items: Sized, count: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return this process's next items int64 ``[count]``, fewer at the end of its epoch."""
        mixture = mixture_of(storage)
        shares = self.weights.shares(mixture)
        self._of = item_bounds(mixture, items, shares).diff().tolist(), shares
        return super().take(storage, items, count, generator)

    def state_dict(self) -> StateDict:
        """Return the epoch, how much of it was drawn by all processes together, and the weights."""
        return super().state_dict() | {"weights": self.weights.state(), "end": self.end}

    def load_state_dict(self, state: StateDict) -> None:
        """Continue in the middle of the epoch of ``state``, with as many processes or not."""
        self.weights.check_state(state, end=self.end)
        super().load_state_dict(state)

    def _order(self, num_items: int, processes: int) -> Order:
        lengths, shares = self._of
        counts = epoch_counts(lengths, shares.tolist(), self.end)
        return mixed_order(lengths, counts, self.seed + self.epoch)


def _uniform(count: int, numbers: int, generator: torch.Generator) -> torch.Tensor:
    """Return numbers for each item, one item after the other: as many at once give the same."""
    return torch.rand((count, numbers), generator=generator, dtype=torch.float64)


def epoch_counts(lengths: Sequence[int], shares: Sequence[float], end: EpochEnd) -> list[int]:
    """Return how many items of each member an epoch has."""
    if end == "all":
        return list(lengths)
    # A member's items would last for `length / share` items of the epoch. The shortest of these
    # ends an epoch of "first", the longest one of "last": that member's items are all drawn.
    drawn = [member for member, share in enumerate(shares) if share > 0]
    limit = min if end == "first" else max
    bound = limit(drawn, key=lambda member: lengths[member] / shares[member])
    # Rounding must not take an item of another member twice, or leave its last one out.
    return [
        limit(length, max(1, round(lengths[bound] * share / shares[bound]))) if share > 0 else 0
        for length, share in zip(lengths, shares, strict=True)
    ]


def item_bounds(mixture: MixtureStorage, items: Sized, shares: torch.Tensor) -> torch.Tensor:
    """Return where each member's items begin, int64 ``[M + 1]``: rows, or trajectories."""
    if isinstance(items, SliceWindows):
        return windows_by_member(mixture, items, shares)
    return mixture.bounds


def draw_members(shares: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Return a member for each number: whole numbers ``[B]`` of a small type."""
    # shares: the part of each member, float64 `[M]` with the sum 1.
    # uniform: float64 `[B]` in [0, 1).
    # Member m has the numbers from the sum of the shares before it up to the sum with its own, so
    # that a member of share 0 has none.
    ends = shares.cumsum()
    last = shares.nonzero()[0][-1]  # none after it is drawn, whatever is lost by rounding
    return bounds_reached(uniform, ends[:last])


def windows_by_member(
    mixture: MixtureStorage, windows: SliceWindows, shares: torch.Tensor
) -> torch.Tensor:
    """Return where each member's trajectories begin, int64 ``[M + 1]``, of those that are drawn."""
    # shares: the part of each member, float64 `[M]`.
    # Trajectories that are too short for a slice are left out, and each is of one member. The
    # others come in the order of their first rows, as members do, so that those of member m are the
    # trajectories whose first row is one of `bounds[m]` to `bounds[m + 1] - 1`:
    #   bounds        0      5    8       12      of members with 5, 3 and 4 rows
    #   first rows    0  3        8  10           of the trajectories that can be drawn
    #   begins        0      2    2       4       none of member 1: the bound 5 is before row 8
    begins = torch.searchsorted(windows.first_rows(), mixture.bounds)
    lacking = (begins.diff() == 0) & (shares > 0)
    if bool(lacking.any()):
        names = [mixture.names[member] for member in lacking.nonzero().flatten().tolist()]
        raise UsageError(
            f"{', '.join(names)}: no trajectory is long enough for a slice, and the weights ask "
            "for some. Ask for shorter slices, pass strict_length=False, or give it the weight 0."
        )
    return begins


def mixture_of(storage: Storage) -> MixtureStorage:
    """Return the storage of a mixture as one."""
    if not isinstance(storage, MixtureStorage):
        raise UsageError(
            f"Weights are those of the members of a Mixture, which a {type(storage).__name__} is "
            "not. Use RandomSampler there."
        )
    return storage
