"""The sampler of slices of a mixture in epochs of trajectories."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from datasets_cli.replay.arguments import StateDict
from datasets_cli.replay.mixtures.epochs import EpochMix
from datasets_cli.replay.mixtures.slices import windows_by_member
from datasets_cli.replay.mixtures.uniform import mixture_of
from datasets_cli.replay.orders.order import Order
from datasets_cli.replay.samplers.distributed import SharedEpochs
from datasets_cli.replay.samplers.protocol import Info, check_kind
from datasets_cli.replay.samplers.slices import Sliced
from datasets_cli.replay.samplers.slicing import Slicing
from datasets_cli.replay.storages.protocol import Storage


class MixtureSliceEpochs(Sliced, SharedEpochs):
    """Draws a random slice of trajectories, which are drawn without replacement in epochs."""

    kind = "epochs of slices of a mixture"
    # The epochs are shared among processes as those of `MixtureEpochs` are.

    def __init__(
        self,
        mix: EpochMix,
        slicing: Slicing,
        num_replicas: int | None,
        rank: int | None,
        seed: int,
        drop_last: bool,
    ) -> None:
        super().__init__(num_replicas, rank, True, seed, drop_last, fills_up=False)
        self.mix = mix
        self.slicing = slicing
        self._of: tuple[list[int], torch.Tensor] = [], torch.empty(0)

    def __repr__(self) -> str:
        mix = self.mix
        return f"MixtureSliceEpochs({mix.weights.state()!r}, {self.slicing!r}, epoch={mix.end!r})"

    def sample(
        self, storage: Storage, batch_size: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return row numbers int64 ``[B]``, slice after slice; fewer slices at an epoch's end."""
        mixture, slicing = mixture_of(storage), self.slicing
        num_slices, slice_len = slicing.shape(batch_size)
        windows = slicing.windows(storage, slice_len)
        shares = self.mix.weights.shares(mixture)
        self._of = windows_by_member(mixture, windows, shares).diff().tolist(), shares
        drawn = self._take(num_slices, len(windows), generator)
        return slicing.draw(storage, windows, drawn, generator)

    def state_dict(self) -> StateDict:
        """Return the epoch, how much of it was drawn by all processes together, and the weights."""
        return super().state_dict() | self.mix.state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue in the middle of the epoch that ``state`` names."""
        check_kind(self.kind, state)
        self.mix.check_state(state)
        super().load_state_dict(state)

    def _order(self, num_items: int, processes: int) -> Order:
        return self.mix.order(*self._of, self.seed + self.epoch)
