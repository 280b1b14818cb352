"""Drawing rows that other processes may write meanwhile."""

from __future__ import annotations

import torch

from datasets_cli.replay.arguments import Rows
from datasets_cli.replay.draws.protocol import Info, Sampler
from datasets_cli.replay.storages.protocol import Storage


class SharedDraw:
    """One draw of rows that other processes may write meanwhile."""

    def __init__(
        self,
        storage: Storage,
        sampler: Sampler,
        size: int,
        generator: torch.Generator,
    ) -> None:
        self._storage = storage
        self._sampler = sampler
        self._size = size
        self._generator = generator
        self._drawn: tuple[torch.Tensor, Info] | None = None
        self._num_rows = 0
        # What is drawn follows from rows: where trajectories end, which goals were reached.
        self._reads_rows = sampler.has_slices or type(sampler).relabel is not Sampler.relabel
        # Items of an epoch are drawn once more, and must not be lost.
        is_epoch = self._reads_rows and not sampler.has_priorities
        self._state = sampler.state_dict() if is_epoch else None

    def attempt(self) -> tuple[torch.Tensor, Info, Rows]:
        """Return row numbers, what is said of them, and the rows."""
        if self._drawn is None or len(self._storage) < self._num_rows:
            self._num_rows = len(self._storage)
            self._drawn = self._sampler.sample(self._storage, self._size, self._generator)
        index, info = self._drawn
        return index, info, self._storage.gather(index)

    def take_back(self) -> None:
        """Draw once more where what was drawn may not hold: slices may cross trajectories now."""
        if self._reads_rows:
            self._drawn = None
            if self._state is not None:
                self._sampler.load_state_dict(self._state)
