"""Samplers of rows, with replacement and without.

A sampler sees a storage only as a number of rows and a table of trajectories, and draws from the
generator that the buffer hands it: the same generator state gives the same batches.
"""

from __future__ import annotations

from collections.abc import Hashable

import torch

from datasets_cli.errors import EmptyBuffer
from datasets_cli.replay.samplers.epoch import EpochSampler
from datasets_cli.replay.samplers.protocol import AheadSampler, Info, KindSampler
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


class SamplerWithoutReplacement(EpochSampler, AheadSampler):
    """Draws every row once an epoch.

    Args:
        drop_last: leave out a last batch that would be short; otherwise the last batch of an epoch
            is shorter where ``batch_size`` does not divide the rows.
        shuffle: draw in random order; in storage order otherwise.
    """

    kind = "epochs of rows"

    def __init__(self, drop_last: bool = False, shuffle: bool = True) -> None:
        super().__init__(drop_last, shuffle)  # written out, so that messages name this class

    def sample(
        self, storage: Storage, batch_size: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return the next row numbers int64 ``[B]`` of the epoch, beginning one when needed.

        Raises:
            UsageError: with ``drop_last``, a batch larger than the storage.
        """
        return self._take(batch_size, len(storage), generator), {}

    @property
    def place(self) -> Hashable:
        """Where the epoch stands."""
        return self._epoch.place

    def ahead(
        self, storage: Storage, batch_size: int, count: int, generator: torch.Generator | None
    ) -> tuple[torch.Tensor, Info] | None:
        """Return the row numbers of the next batches; see ``AheadSampler.ahead``."""
        index = self._epoch.ahead(count * batch_size, len(storage))
        whole = len(index) // batch_size * batch_size  # the last batch of an epoch may be short
        return (index[:whole], {}) if whole else None

    def advance(self, num_rows: int) -> None:
        """Learn that the next rows of ``ahead`` were handed out, a batch of ``num_rows``."""
        self._epoch.advance(num_rows, num_rows if self._epoch.drop_last else 1)
        self.ran_out = self._epoch.ran_out
