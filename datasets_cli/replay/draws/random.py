"""Samplers of rows, with replacement and without.

A sampler sees a storage only as a number of rows and a table of trajectories, and draws from the
generator that the buffer hands it: the same generator state gives the same batches.
"""

from __future__ import annotations

import torch

from datasets_cli.errors import EmptyBuffer
from datasets_cli.replay.draws.epoch import OwnEpochs, RowEpochs
from datasets_cli.replay.draws.protocol import AheadSampler, Info, KindSampler
from datasets_cli.replay.storages.protocol import NO_ROWS, Storage


class RandomSampler(KindSampler, AheadSampler):
    """Draws rows uniformly, with replacement."""

    kind = "uniform rows"

    def __init__(self) -> None:
        """Take no argument: otherwise a protocol's own signature would be shown, of any."""

    def sample(
        self, storage: Storage, batch_size: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return row numbers int64 ``[B]``.

        Raises:
            UsageError: there are no rows.
        """
        if not (num_rows := len(storage)):
            raise EmptyBuffer(NO_ROWS)
        return torch.randint(num_rows, (batch_size,), generator=generator), {}

    def ahead(
        self, storage: Storage, batch_size: int, count: int, generator: torch.Generator | None
    ) -> tuple[torch.Tensor, Info] | None:
        """Return the row numbers of ``count`` batches; see ``AheadSampler.ahead``."""
        if generator is None:
            return None
        return self.sample(storage, count * batch_size, generator)  # one number after the other


class SamplerWithoutReplacement(OwnEpochs, RowEpochs):
    """Draws every row once an epoch.

    Args:
        drop_last: leave out a last batch that would be short; otherwise the last batch of an epoch
            is shorter where ``batch_size`` does not divide the rows.
        shuffle: draw in random order; in storage order otherwise.
    """

    kind = "epochs of rows"

    def __init__(self, drop_last: bool = False, shuffle: bool = True) -> None:
        super().__init__(shuffle, drop_last)  # written out, so that messages name this class
