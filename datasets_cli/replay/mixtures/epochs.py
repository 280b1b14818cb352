"""Epochs of a mixture: how many items of each member one has, and the samplers that draw them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from typing import Any, Literal

import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import StateDict
from datasets_cli.replay.draws.distributed import SharedEpochs
from datasets_cli.replay.draws.epoch import RowEpochs
from datasets_cli.replay.draws.mixed_order import MixedOrder
from datasets_cli.replay.draws.orders import Order
from datasets_cli.replay.draws.protocol import Info, check_kind
from datasets_cli.replay.draws.slices import Slices
from datasets_cli.replay.draws.slicing import Slicing
from datasets_cli.replay.draws.windows import SliceWindows
from datasets_cli.replay.mixtures.slices import windows_by_member
from datasets_cli.replay.mixtures.uniform import mixture_of
from datasets_cli.replay.mixtures.weights import Weights
from datasets_cli.replay.storages.protocol import Storage

EpochEnd = Literal["all", "first", "last"]
"""When an epoch ends: every item once, or when the first or the last member has none left."""


def epoch_counts(lengths: Sequence[int], shares: Sequence[float], end: EpochEnd) -> list[int]:
    """Return how many items of each member an epoch has."""
    if end == "all":
        return list(lengths)
    drawn = [member for member, share in enumerate(shares) if share > 0]
    choose = min if end == "first" else max
    bound = choose(drawn, key=lambda member: lengths[member] / shares[member])
    limit = min if end == "first" else max
    # Rounding must not take an item of another member twice, or leave its last one out.
    return [
        limit(length, max(1, round(lengths[bound] * share / shares[bound]))) if share > 0 else 0
        for length, share in zip(lengths, shares, strict=True)
    ]


class EpochMix:
    """Of what an epoch of a mixture is made: its order, and what a state says of it."""

    def __init__(self, weights: Weights, end: EpochEnd) -> None:
        self.weights = weights
        self.end = end

    def order(self, lengths: Sequence[int], shares: torch.Tensor, key: int) -> MixedOrder:
        """Return the order of an epoch over items of members; see ``MixedOrder``."""
        counts = epoch_counts(lengths, shares.tolist(), self.end)
        return MixedOrder(lengths, counts, key)

    def state(self) -> StateDict:
        """Return what a state says of it."""
        return {"weights": self.weights.state(), "end": self.end}

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Check that a state is of the same."""
        self.weights.check_state(state)
        if (found := state.get("end")) != self.end:
            raise UsageError(
                f"The state is of epochs with epoch={found!r}, not {self.end!r}. Make a mixture "
                "with that, or begin without this state."
            )


class MixedEpochs(SharedEpochs):
    """Epochs of rows or trajectories of members, shared among processes."""

    def __init__(
        self, mix: EpochMix, num_replicas: int | None, rank: int | None, seed: int, drop_last: bool
    ) -> None:
        super().__init__(num_replicas, rank, True, seed, drop_last, fills_up=False)
        self.mix = mix
        self._of: tuple[list[int], torch.Tensor] = [], torch.empty(0)

    def take(
        self, storage: Storage, items: Sized, count: int, generator: torch.Generator
    ) -> torch.Tensor:
        """Return this process's next items int64 ``[count]``, fewer at the end of its epoch."""
        mixture = mixture_of(storage)
        shares = self.mix.weights.shares(mixture)
        if isinstance(items, SliceWindows):
            lengths = windows_by_member(mixture, items, shares).diff()
        else:
            lengths = mixture.lengths
        self._of = lengths.tolist(), shares
        return super().take(storage, items, count, generator)

    def state_dict(self) -> StateDict:
        """Return the epoch, how much of it was drawn by all processes together, and the weights."""
        return super().state_dict() | self.mix.state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue in the middle of the epoch of ``state``, with as many processes or not."""
        check_kind(self.kind, state)
        self.mix.check_state(state)
        super().load_state_dict(state)

    def _order(self, num_items: int, processes: int) -> Order:
        return self.mix.order(*self._of, self.seed + self.epoch)


class MixtureEpochs(MixedEpochs, RowEpochs):
    """Draws rows of the members without replacement."""

    kind = "epochs of rows of a mixture"

    def __repr__(self) -> str:
        return f"MixtureEpochs({self.mix.weights.state()!r}, epoch={self.mix.end!r})"

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
        mix: EpochMix,
        slicing: Slicing,
        num_replicas: int | None,
        rank: int | None,
        seed: int,
        drop_last: bool,
    ) -> None:
        super().__init__(mix, num_replicas, rank, seed, drop_last)
        self.slicing = slicing

    def __repr__(self) -> str:
        mix = self.mix
        return f"MixtureSliceEpochs({mix.weights.state()!r}, {self.slicing!r}, epoch={mix.end!r})"
