"""The samplers of a mixture: a member by its weight, then rows or slices of it; and epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from typing import Any, Literal

import numpy as np
import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import StateDict
from datasets_cli.replay.draws.distributed import SharedEpochs
from datasets_cli.replay.draws.epoch import RowEpochs
from datasets_cli.replay.draws.mixed_order import MixedOrder, bounds_reached
from datasets_cli.replay.draws.orders import Order
from datasets_cli.replay.draws.protocol import AheadSampler, Info, KindSampler, check_kind
from datasets_cli.replay.draws.slices import Slices
from datasets_cli.replay.draws.slicing import Slicing
from datasets_cli.replay.draws.windows import SliceWindows
from datasets_cli.replay.several.storage import MixtureStorage
from datasets_cli.replay.several.weights import MixtureWeights
from datasets_cli.replay.storages.protocol import Storage

EpochEnd = Literal["all", "first", "last"]
"""When an epoch ends: every item once, or when the first or the last member has none left."""


class MixtureSampler(KindSampler):
    """A sampler by weights of members; its state names them."""

    end: EpochEnd | None = None  # None draws with replacement

    def __init__(self, weights: MixtureWeights) -> None:
        self.weights = weights

    def __repr__(self) -> str:
        arguments = [
            repr(self.weights.state()),
            *([repr(self.slicing)] if isinstance(self, Slices) else []),
            *([] if self.end is None else [f"epoch={self.end!r}"]),
        ]
        return f"{type(self).__name__}({', '.join(arguments)})"

    def state_dict(self) -> StateDict:
        """Return where the draws stand, and what they depend on."""
        ends = {} if self.end is None else {"end": self.end}
        return super().state_dict() | {"weights": self.weights.state(), **ends}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state`` was taken."""
        check_kind(self.kind, state)
        self.weights.check_state(state)
        if (end := state.get("end")) != self.end:
            raise UsageError(
                f"The state is of epochs with epoch={end!r}, not {self.end!r}. Make a mixture with "
                "that, or begin without this state."
            )
        super().load_state_dict(state)


class WeightedRows(MixtureSampler, AheadSampler):
    """Draws a member by its weight, then a row of it uniformly, with replacement."""

    kind = "weighted rows"

    def sample(
        self, storage: Storage, batch_size: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return row numbers int64 ``[B]``."""
        mixture = mixture_of(storage)
        shares = self.weights.shares(mixture)
        # Two numbers for each row, one row after the other: as many at once give the same.
        uniform = torch.rand((batch_size, 2), generator=generator, dtype=torch.float64)
        return draw_items(mixture.bounds, shares, uniform), {}

    def ahead(
        self, storage: Storage, batch_size: int, count: int, generator: torch.Generator | None
    ) -> tuple[torch.Tensor, Info] | None:
        """Return the row numbers of ``count`` batches; see ``AheadSampler.ahead``."""
        return None if generator is None else self.sample(storage, count * batch_size, generator)


class WeightedSlices(MixtureSampler, Slices):
    """Draws a member by its weight, then a slice of it as ``Slices`` does."""

    kind = "weighted slices"

    def __init__(self, weights: MixtureWeights, slicing: Slicing) -> None:
        super().__init__(weights)
        self.slicing = slicing

    def sample(
        self, storage: Storage, batch_size: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return row numbers int64 ``[B]``, slice after slice, and the marks of slice ends."""
        num_slices, slice_len = self.slicing.shape(batch_size)
        windows = self.slicing.windows(storage, slice_len)
        return self._cut(storage, windows, num_slices, generator)

    def ahead(
        self, storage: Storage, batch_size: int, count: int, generator: torch.Generator | None
    ) -> tuple[torch.Tensor, Info] | None:
        """Return the rows of ``count`` batches; see ``AheadSampler.ahead``."""
        # None where slices may be shorter than others.
        if generator is None:
            return None
        num_slices, slice_len = self.slicing.shape(batch_size)
        windows = self.slicing.windows(storage, slice_len)
        if not (windows.are_full or self.slicing.pad_output):
            return None
        return self._cut(storage, windows, count * num_slices, generator)

    def _cut(
        self, storage: Storage, windows: SliceWindows, count: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        mixture = mixture_of(storage)
        shares = self.weights.shares(mixture)
        begins = windows_by_member(mixture, windows, shares)
        # Three numbers for each slice, one slice after the other: as many at once give the same.
        # The first two say its trajectory, and the third where it is in that.
        uniform = torch.rand((count, 3), generator=generator, dtype=torch.float64)
        drawn = draw_items(begins, shares, uniform)
        return self.slicing.cut(storage, windows, drawn, uniform[:, 2].clone())


class MixedEpochs(MixtureSampler, SharedEpochs):
    """Epochs of rows or trajectories of members, shared among processes."""

    def __init__(
        self,
        weights: MixtureWeights,
        end: EpochEnd,
        num_replicas: int | None,
        rank: int | None,
        seed: int,
        drop_last: bool,
    ) -> None:
        SharedEpochs.__init__(self, num_replicas, rank, True, seed, drop_last, fills_up=False)
        self.weights = weights
        self.end = end
        self._of: tuple[list[int], torch.Tensor] = [], torch.empty(0)  # items, shares of members

    def take(
        self, storage: Storage, items: Sized, count: int, generator: torch.Generator
    ) -> torch.Tensor:
        """Return this process's next items int64 ``[count]``, fewer at the end of its epoch."""
        mixture = mixture_of(storage)
        shares = self.weights.shares(mixture)
        if isinstance(items, SliceWindows):
            lengths = windows_by_member(mixture, items, shares).diff()
        else:
            lengths = mixture.lengths
        self._of = lengths.tolist(), shares
        return super().take(storage, items, count, generator)

    def _order(self, num_items: int, processes: int) -> Order:
        lengths, shares = self._of
        assert self.end is not None
        counts = epoch_counts(lengths, shares.tolist(), self.end)
        return MixedOrder(lengths, counts, self.seed + self.epoch)


class MixtureEpochs(MixedEpochs, RowEpochs):
    """Draws rows of the members without replacement."""

    kind = "epochs of rows of a mixture"

    def ahead(
        self, storage: Storage, batch_size: int, count: int, generator: torch.Generator | None
    ) -> tuple[torch.Tensor, Info] | None:
        """Return this process's row numbers of the next batches; see ``AheadSampler.ahead``."""
        return super().ahead(storage, batch_size, count, generator)  # as take() is of a mixture


class MixtureSliceEpochs(MixedEpochs, Slices):
    """Draws a random slice of trajectories, which are drawn without replacement."""

    kind = "epochs of slices of a mixture"

    def __init__(
        self,
        weights: MixtureWeights,
        end: EpochEnd,
        slicing: Slicing,
        num_replicas: int | None,
        rank: int | None,
        seed: int,
        drop_last: bool,
    ) -> None:
        super().__init__(weights, end, num_replicas, rank, seed, drop_last)
        self.slicing = slicing


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


def draw_items(begins: torch.Tensor, shares: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """Return an item for each row of numbers: of a member by its share, uniformly within it."""
    # begins: where the items of each member begin, int64 `[M + 1]`; items are rows or trajectories.
    # shares: the part of each member, float64 `[M]` with the sum 1.
    # uniform: float64 `[B, 2 or more]` in [0, 1): the first says the member, the second its item.
    bounds, numbers = begins.numpy(), uniform.numpy()
    member = draw_members(shares.numpy(), numbers[:, 0])
    # A product below the member's number of items, so that cut to a whole number it is one of them.
    item = numbers[:, 1] * np.diff(bounds).take(member)
    return torch.from_numpy(item.astype(np.int64) + bounds.take(member))


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
