"""Slice samplers: they draw runs of consecutive rows, each within one trajectory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.epoch import Epoch
from datasets_cli.replay.samplers import Info
from datasets_cli.replay.storage import Storage


class SliceSampler:
    """Draws runs of consecutive rows, each within one trajectory.

        trajectory   0 0 0 0 0 1 1 1 2 2 2 2
        slice of 3     └───┘                    a start is uniform over those that leave room

    A trajectory is drawn uniformly, then a start in it; a slice never crosses a boundary. The batch
    is flat, ``[num_slices * slice_len]``; ``batch.reshape(num_slices, -1)`` gives the slices.

    Args:
        num_slices: slices in a batch; exclusive with ``slice_len``.
        slice_len: rows in a slice; exclusive with ``num_slices``.
        strict_length: leave out trajectories shorter than a slice; otherwise they are drawn whole
            and the batch is shorter than asked for.
        truncated_key: where the last row of each slice is marked, for value estimators that must
            not look past it; the done flag beside it is set too. None marks nothing.
    """

    ran_out = False

    def __init__(
        self,
        *,
        num_slices: int | None = None,
        slice_len: int | None = None,
        strict_length: bool = True,
        truncated_key: tuple[str, ...] | None = ("next", "truncated"),
    ) -> None:
        if (num_slices is None) == (slice_len is None):
            raise TypeError("Give either num_slices or slice_len.")
        if any(size is not None and size < 1 for size in (num_slices, slice_len)):
            raise UsageError("num_slices and slice_len count from 1.")
        self.num_slices = num_slices
        self.slice_len = slice_len
        self.strict_length = strict_length
        self.truncated_key = truncated_key
        self._prepared: Slices | None = None

    def sample(
        self, storage: Storage, batch_size: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return row numbers int64 ``[B]``, slice after slice, and the marks of slice ends.

        Raises:
            UsageError: the batch is not a whole number of slices, or no trajectory is long enough.
        """
        num_slices, slice_len = self.shape(batch_size)
        slices = self.prepare(storage, slice_len)
        drawn = torch.randint(len(slices.starts), (num_slices,), generator=generator)
        return slices.draw(drawn, generator)

    def shape(self, batch_size: int) -> tuple[int, int]:
        """Return how many slices of how many rows a batch is made of."""
        divisor = self.num_slices or self.slice_len
        assert divisor is not None
        if batch_size % divisor or batch_size < divisor:
            wish = "num_slices" if self.num_slices else "slice_len"
            raise UsageError(f"A batch of {batch_size} cannot be cut by {wish}={divisor}.")
        if self.num_slices:
            return self.num_slices, batch_size // self.num_slices
        return batch_size // divisor, divisor

    def prepare(self, storage: Storage, slice_len: int) -> Slices:
        """Return the slices that can be drawn from a storage; worked out once."""
        prepared = self._prepared
        if prepared is None or prepared.storage is not storage or prepared.slice_len != slice_len:
            prepared = Slices(storage, slice_len, self.strict_length, self.truncated_key)
            self._prepared = prepared
        return prepared

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: each draw depends on the generator alone."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take nothing."""


class Slices:
    """The slices of one length that a storage has.

    Args:
        storage: where the trajectories are.
        slice_len: rows in a slice.
        strict_length: leave out shorter trajectories; otherwise they are slices of their own.
        truncated_key: where slice ends are marked, or None.

    Raises:
        UsageError: no trajectory is long enough.
    """

    def __init__(
        self,
        storage: Storage,
        slice_len: int,
        strict_length: bool,
        truncated_key: tuple[str, ...] | None,
    ) -> None:
        self.storage = storage
        self.slice_len = slice_len
        self._truncated_key = truncated_key
        offsets = storage.offsets
        starts, lengths = offsets[:-1], offsets.diff()
        if strict_length:
            long_enough = lengths >= slice_len
            if not bool(long_enough.any()):
                raise UsageError(
                    f"No trajectory has {slice_len} rows; the longest has {int(lengths.max())}. "
                    "Ask for shorter slices, or pass strict_length=False to take short "
                    "trajectories whole."
                )
            starts, lengths = starts[long_enough], lengths[long_enough]
        self.starts = starts
        self._lengths = lengths.clamp(max=slice_len)
        # float64: a float32 cannot name every start of a trajectory above 2**24 rows.
        self._room = (lengths - slice_len + 1).clamp(min=1).double()
        self._steps = torch.arange(slice_len)
        self._is_last = self._steps == slice_len - 1
        self._equal = strict_length or bool((lengths >= slice_len).all())

    def draw(self, drawn: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, Info]:
        """Return one random slice of each trajectory ``drawn`` int64 ``[S]``, its end marked."""
        uniform = torch.rand(len(drawn), generator=generator, dtype=torch.float64)
        first = self.starts.index_select(0, drawn)
        first += uniform.mul_(self._room.index_select(0, drawn)).long()
        index = first.unsqueeze(1) + self._steps
        if self._equal:
            index = index.view(-1)
            last = self._is_last.expand(len(drawn), -1).reshape(-1, 1)
        else:
            lengths = self._lengths.index_select(0, drawn).unsqueeze(1)
            inside = self._steps < lengths
            index, last = index[inside], (self._steps == lengths - 1)[inside].unsqueeze(1)
        return index, {} if self._truncated_key is None else {self._truncated_key: last}


class SliceSamplerWithoutReplacement:
    """Draws one random slice of every trajectory, each trajectory once an epoch.

    Args:
        drop_last: leave out a last batch that has too few trajectories left.
        shuffle: visit the trajectories in random order.
        slices: the arguments of ``SliceSampler``.
    """

    def __init__(self, *, drop_last: bool = False, shuffle: bool = True, **slices: Any) -> None:
        self._slices = SliceSampler(**slices)
        self._epoch = Epoch(drop_last=drop_last, shuffle=shuffle)

    @property
    def ran_out(self) -> bool:
        """Whether the batch just drawn was the last of an epoch."""
        return self._epoch.ran_out

    def sample(
        self, storage: Storage, batch_size: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return row numbers int64 ``[B]``, slice after slice; fewer slices at an epoch's end.

        Raises:
            UsageError: as ``SliceSampler.sample``, or with ``drop_last`` too few trajectories.
        """
        num_slices, slice_len = self._slices.shape(batch_size)
        slices = self._slices.prepare(storage, slice_len)
        return slices.draw(self._epoch.take(num_slices, len(slices.starts), generator), generator)

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch's seed and position."""
        return self._epoch.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on in the middle of the epoch that ``state`` names."""
        self._epoch.load_state_dict(state)
