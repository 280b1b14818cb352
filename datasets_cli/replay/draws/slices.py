"""The samplers of slices: they draw runs of consecutive rows, each within one trajectory."""

from __future__ import annotations

from collections.abc import Hashable, Sized

import torch

from datasets_cli.replay.draws.epoch import OwnEpochs
from datasets_cli.replay.draws.protocol import AheadSampler, Info, KindSampler
from datasets_cli.replay.draws.slicing import Slicing
from datasets_cli.replay.draws.windows import Span
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.schema.columns import Key


class Slices(KindSampler, AheadSampler):
    """Draws runs of consecutive rows, each within one trajectory, with replacement.

        trajectory   0 0 0 0 0 1 1 1 2 2 2 2
        slice of 3     └───┘                    a start is uniform over those that leave room

    A trajectory is drawn uniformly, then a start in it; a slice never crosses a boundary. The batch
    is flat, ``[num_slices * slice_len]``; ``batch.reshape(num_slices, -1)`` gives the slices.
    """

    kind = "uniform slices"
    has_slices = True

    def __init__(self, slicing: Slicing) -> None:
        self.slicing = slicing

    @property
    def num_slices(self) -> int | None:
        """Slices in a batch, where that is fixed."""
        return self.slicing.num_slices

    @property
    def slice_len(self) -> int | None:
        """Rows in a slice, where that is fixed."""
        return self.slicing.slice_len

    @property
    def strict_length(self) -> bool:
        """Whether trajectories shorter than a slice are left out."""
        return self.slicing.strict_length

    @property
    def span(self) -> tuple[Span, Span]:
        """How many rows of a slice may be before and after its trajectory."""
        return self.slicing.span

    @property
    def truncated_key(self) -> Key | None:
        """Where the last row of each slice is marked."""
        return self.slicing.truncated_key

    @truncated_key.setter
    def truncated_key(self, key: Key | None) -> None:
        self.slicing.truncated_key = key

    @property
    def init_key(self) -> Key | None:
        """Where the first row of each slice is marked."""
        return self.slicing.init_key

    @init_key.setter
    def init_key(self, key: Key | None) -> None:
        self.slicing.init_key = key

    def sample(
        self, storage: Storage, batch_size: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return row numbers int64 ``[B]``, slice after slice, and the marks of slice ends.

        Raises:
            UsageError: the batch is not a whole number of slices, or no trajectory is long enough.
        """
        slicing = self.slicing
        num_slices, slice_len = slicing.shape(batch_size)
        windows = slicing.windows(storage, slice_len)
        drawn = self.take(storage, windows, num_slices, generator)
        uniform = torch.rand(len(drawn), generator=generator, dtype=torch.float64)
        return slicing.cut(storage, windows, drawn, uniform)

    def take(
        self, storage: Storage, items: Sized, count: int, generator: torch.Generator
    ) -> torch.Tensor:
        """Return the trajectories int64 ``[count]`` that slices are drawn from."""
        return torch.randint(len(items), (count,), generator=generator)

    @property
    def place(self) -> Hashable:
        """The keys of the marks, which can be set."""
        return self.slicing.truncated_key, self.slicing.init_key

    def ahead(
        self, storage: Storage, batch_size: int, count: int, generator: torch.Generator | None
    ) -> tuple[torch.Tensor, Info] | None:
        """Return the rows of ``count`` batches; see ``AheadSampler.ahead``.

        None where slices may be shorter than others.
        """
        if generator is None:
            return None
        slicing = self.slicing
        num_slices, slice_len = slicing.shape(batch_size)
        windows = slicing.windows(storage, slice_len)
        if not (windows.are_full or slicing.pad_output):
            return None
        drawn = torch.empty((count, num_slices), dtype=torch.int64)
        uniform = torch.empty((count, num_slices), dtype=torch.float64)
        for trajectories, starts in zip(drawn.unbind(), uniform.unbind(), strict=True):
            trajectories.random_(len(windows), generator=generator)  # as sample() and take() do
            starts.uniform_(generator=generator)
        return slicing.cut(storage, windows, drawn.view(-1), uniform.view(-1))


class SlicePerRow(Slices):
    """Draws a slice for each row of a batch."""

    kind = "a uniform slice for each row"

    def sample(
        self, storage: Storage, batch_size: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return row numbers int64 ``[B * slice_len]``; see ``Slices.sample``."""
        assert self.slice_len is not None
        return super().sample(storage, batch_size * self.slice_len, generator)


class SliceEpochs(OwnEpochs, Slices):
    """Draws one random slice of every trajectory, each trajectory once an epoch."""

    kind = "epochs of slices"

    def __init__(self, slicing: Slicing, *, drop_last: bool = False, shuffle: bool = True) -> None:
        super().__init__(shuffle, drop_last)
        self.slicing = slicing
