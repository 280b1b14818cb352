"""The sampler of slices without replacement: a slice of every trajectory, once an epoch."""

from __future__ import annotations

from datasets_cli.replay.samplers.epoch import OwnEpochs
from datasets_cli.replay.samplers.slices import Slices
from datasets_cli.replay.samplers.slicing import Slicing


class SliceEpochs(OwnEpochs, Slices):
    """Draws one random slice of every trajectory, each trajectory once an epoch."""

    kind = "epochs of slices"

    def __init__(self, slicing: Slicing, *, drop_last: bool = False, shuffle: bool = True) -> None:
        super().__init__(shuffle, drop_last)
        self.slicing = slicing
