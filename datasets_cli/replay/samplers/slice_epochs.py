"""The slice sampler without replacement: a slice of every trajectory, once an epoch."""

from __future__ import annotations

from typing import Unpack

import torch

from datasets_cli.replay.samplers.protocol import Info
from datasets_cli.replay.samplers.random import EpochSampler
from datasets_cli.replay.samplers.slice_options import SliceOptions
from datasets_cli.replay.samplers.slices import SliceSampler
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.store.schema.columns import Key


class SliceSamplerWithoutReplacement(EpochSampler):
    """Draws one random slice of every trajectory, each trajectory once an epoch.

    Args:
        drop_last: leave out a last batch that has too few trajectories left.
        shuffle: visit the trajectories in random order.
        slices: the arguments of ``SliceSampler``.
    """

    has_slices = True

    def __init__(
        self, *, drop_last: bool = False, shuffle: bool = True, **slices: Unpack[SliceOptions]
    ) -> None:
        super().__init__(drop_last, shuffle)
        self._slices = SliceSampler(**slices)

    def sample(
        self, storage: Storage, batch_size: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return row numbers int64 ``[B]``, slice after slice; fewer slices at an epoch's end.

        Raises:
            UsageError: as ``SliceSampler.sample``, or with ``drop_last`` too few trajectories.
        """
        num_slices, slice_len = self._slices.shape(batch_size)
        cuts = self._slices.prepare(storage, slice_len)
        drawn = self._epoch.take(num_slices, len(cuts), generator)
        return self._slices.draw(storage, cuts, drawn, generator)

    @property
    def truncated_key(self) -> Key | None:  # type: ignore[override]
        """Where slice ends are marked."""
        return self._slices.truncated_key

    @property
    def init_key(self) -> Key | None:  # type: ignore[override]
        """Where slice beginnings are marked."""
        return self._slices.init_key
