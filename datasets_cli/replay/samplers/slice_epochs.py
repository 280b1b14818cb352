"""The sampler of slices without replacement: a slice of every trajectory, once an epoch."""

from __future__ import annotations

import torch

from datasets_cli.replay.samplers.epoch import OwnEpochs
from datasets_cli.replay.samplers.protocol import Info
from datasets_cli.replay.samplers.slices import Sliced
from datasets_cli.replay.samplers.slicing import Slicing
from datasets_cli.replay.storages.protocol import Storage


class SliceEpochs(Sliced, OwnEpochs):
    """Draws one random slice of every trajectory, each trajectory once an epoch."""

    kind = "epochs of slices"

    def __init__(self, slicing: Slicing, *, drop_last: bool = False, shuffle: bool = True) -> None:
        super().__init__(shuffle, drop_last)
        self.slicing = slicing

    def sample(
        self, storage: Storage, batch_size: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return row numbers int64 ``[B]``, slice after slice; fewer slices at an epoch's end.

        Raises:
            UsageError: as ``UniformSlices.sample``, or with ``drop_last`` too few trajectories.
        """
        slicing = self.slicing
        num_slices, slice_len = slicing.shape(batch_size)
        windows = slicing.windows(storage, slice_len)
        drawn = self._take(num_slices, len(windows), generator)
        return slicing.draw(storage, windows, drawn, generator)
