"""Drawing rows: what they are drawn from, and how where other processes write meanwhile."""

from __future__ import annotations

import torch

from datasets_cli.replay.arguments import (
    Rows,
    StateDict,
    choose_generator,
    pickled_generator,
    seeded,
    unpickled_generator,
)
from datasets_cli.replay.draws.protocol import Info, Sampler
from datasets_cli.replay.storages.protocol import Storage


class DrawGenerator:
    """The generator of a buffer."""

    # With neither argument, rows that never change are drawn from a generator of the buffer's own,
    # which torch's global one seeds at the first draw, as `torch.utils.data.DataLoader` does; rows
    # that can be written are drawn from the global one. A copy in another process is then seeded
    # there, so that processes do not draw the same.

    def __init__(self, generator: torch.Generator | None, seed: int | None) -> None:
        self._seed = seed
        self._is_seeded_here = generator is None and seed is None
        self._generator = None if self._is_seeded_here else choose_generator(generator, seed)
        self.is_private = generator is None

    def get(self, *, is_writable: bool) -> torch.Generator:
        """Return the generator, for rows that can be written or for others."""
        if self._is_seeded_here and is_writable:
            return torch.default_generator
        if self._generator is None:
            self._generator = seeded(int(torch.randint(2**62, ())))
        return self._generator

    def again(self) -> DrawGenerator:
        """Return what another buffer draws from: a seed begins again, a given generator is
        shared.
        """
        # With neither, it has a generator of its own too.
        if self._is_seeded_here or self._seed is not None:
            return DrawGenerator(None, self._seed)
        return DrawGenerator(self._generator, None)

    def after_copy(self) -> None:
        """Begin in a new process."""
        if self._is_seeded_here:
            self._generator = None

    def __getstate__(self) -> StateDict:
        if self._is_seeded_here or self._generator is None:
            return {**self.__dict__, "_generator": None}
        return {**self.__dict__, "_generator": pickled_generator(self._generator)}

    def __setstate__(self, state: StateDict) -> None:
        self.__dict__.update(state)
        if not self._is_seeded_here:
            self._generator = unpickled_generator(state["_generator"])


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
