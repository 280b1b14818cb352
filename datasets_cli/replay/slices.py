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
        if min(num_slices or 1, slice_len or 1) < 1:
            raise UsageError("num_slices and slice_len count from 1.")
        self.num_slices = num_slices
        self.slice_len = slice_len
        self.strict_length = strict_length
        self.truncated_key = truncated_key
        self._usable: tuple[int, torch.Tensor, torch.Tensor] | None = None

    def sample(
        self, storage: Storage, batch_size: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return row numbers int64 ``[B]``, slice after slice, and the marks of slice ends.

        Raises:
            UsageError: the batch is not a whole number of slices, or no trajectory is long enough.
        """
        num_slices, slice_len = self.shape(batch_size)
        starts, lengths = self.usable(storage, slice_len)
        drawn = torch.randint(len(starts), (num_slices,), generator=generator)
        return self.slices(starts[drawn], lengths[drawn], slice_len, generator)

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

    def usable(self, storage: Storage, slice_len: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return first rows and lengths, int64 ``[K]`` each, of the trajectories to draw from."""
        if self._usable is None or self._usable[0] != slice_len:
            offsets = storage.offsets
            starts, lengths = offsets[:-1], offsets.diff()
            if self.strict_length:
                long_enough = lengths >= slice_len
                if not bool(long_enough.any()):
                    raise UsageError(
                        f"No trajectory has {slice_len} rows; the longest has "
                        f"{int(lengths.max())}. Ask for shorter slices, or pass "
                        "strict_length=False to take short trajectories whole."
                    )
                starts, lengths = starts[long_enough], lengths[long_enough]
            self._usable = slice_len, starts, lengths
        return self._usable[1:]

    def slices(
        self,
        starts: torch.Tensor,
        lengths: torch.Tensor,
        slice_len: int,
        generator: torch.Generator,
    ) -> tuple[torch.Tensor, Info]:
        """Return one random slice of each of the given trajectories, and the marks of its end."""
        # float64: a float32 cannot name every start of a trajectory above 2**24 rows.
        uniform = torch.rand(len(starts), generator=generator, dtype=torch.float64)
        room = (lengths - slice_len + 1).clamp(min=1)
        first = starts + (uniform * room).long()
        index = first[:, None] + torch.arange(slice_len)
        inside = torch.arange(slice_len) < lengths[:, None]
        last = torch.zeros_like(inside)
        last[torch.arange(len(starts)), lengths.clamp(max=slice_len) - 1] = True
        if self.strict_length:
            index, last = index.flatten(), last.flatten()
        else:
            index, last = index[inside], last[inside]
        return index, {} if self.truncated_key is None else {self.truncated_key: last[:, None]}

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: each draw depends on the generator alone."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take nothing."""


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
        starts, lengths = self._slices.usable(storage, slice_len)
        drawn = self._epoch.take(num_slices, len(starts), generator)
        return self._slices.slices(starts[drawn], lengths[drawn], slice_len, generator)

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch's seed and position."""
        return self._epoch.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on in the middle of the epoch that ``state`` names."""
        self._epoch.load_state_dict(state)
