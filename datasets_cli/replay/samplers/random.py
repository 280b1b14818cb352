"""Samplers: they draw the rows of a batch.

A sampler sees a storage only as a number of rows and a table of trajectories, and draws from the
generator that the buffer hands it: the same generator state gives the same batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.samplers.epoch import Epoch
from datasets_cli.replay.samplers.protocol import Info, Sampler
from datasets_cli.replay.storages.protocol import NO_ROWS, Storage


class RandomSampler(Sampler):
    """Draws rows uniformly, with replacement."""

    ran_out = False

    def sample(
        self, storage: Storage, batch_size: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return row numbers int64 ``[B]``.

        Raises:
            UsageError: there are no rows.
        """
        if not (num_rows := len(storage)):
            raise UsageError(NO_ROWS)
        return torch.randint(num_rows, (batch_size,), generator=generator), {}

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: each draw depends on the generator alone."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take nothing."""


class EpochSampler(Sampler):
    """What samplers without replacement have in common: an epoch, and where it stands.

    Args:
        drop_last: leave out a last batch that would be short.
        shuffle: draw in random order; in storage order otherwise.
    """

    def __init__(self, drop_last: bool = False, shuffle: bool = True) -> None:
        self._epoch = Epoch(drop_last=drop_last, shuffle=shuffle)

    @property
    def ran_out(self) -> bool:  # type: ignore[override]
        """Whether the batch just drawn was the last of an epoch."""
        return self._epoch.ran_out

    def on_clear(self) -> None:
        """Begin an epoch anew."""
        self._epoch.begin()

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch's seed and position."""
        return self._epoch.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on in the middle of the epoch that ``state`` names."""
        self._epoch.load_state_dict(state)


class SamplerWithoutReplacement(EpochSampler):
    """Draws every row once an epoch.

    Args:
        drop_last: leave out a last batch that would be short; otherwise the last batch of an epoch
            is shorter where ``batch_size`` does not divide the rows.
        shuffle: draw in random order; in storage order otherwise.
    """

    def sample(
        self, storage: Storage, batch_size: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return the next row numbers int64 ``[B]`` of the epoch, beginning one when needed.

        Raises:
            UsageError: with ``drop_last``, a batch larger than the storage.
        """
        return self._epoch.take(batch_size, len(storage), generator), {}
