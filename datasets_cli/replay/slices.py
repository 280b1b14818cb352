"""Slice samplers: they draw runs of consecutive rows, each within one trajectory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.cuts import Cuts, Span
from datasets_cli.replay.epoch import Epoch
from datasets_cli.replay.nested_key import NestedKey, key_of
from datasets_cli.replay.runs import Runs, runs_of
from datasets_cli.replay.samplers import Info
from datasets_cli.replay.storage import Storage
from datasets_cli.store.columns import Key


class SliceSampler:
    """Draws runs of consecutive rows, each within one trajectory.

        trajectory   0 0 0 0 0 1 1 1 2 2 2 2
        slice of 3     └───┘                    a start is uniform over those that leave room

    A trajectory is drawn uniformly, then a start in it; a slice never crosses a boundary. The batch
    is flat, ``[num_slices * slice_len]``; ``batch.reshape(num_slices, -1)`` gives the slices.

    Trajectories are what the storage knows of them: a dataset its table, other storages the first
    there is of ``("collector", "traj_ids")``, ``"episode"`` and ``("next", "done")``. They are
    worked out once, and again after rows were written.

    Args:
        num_slices: slices in a batch; exclusive with ``slice_len``.
        slice_len: rows in a slice; exclusive with ``num_slices``.
        end_key: column of flags at the ends of trajectories.
        traj_key: column of numbers that change between trajectories; ``trajectory_key`` is another
            name for it.
        ends: those flags, bool ``[N]`` or ``[N, 1]``, for a storage that will not change.
        trajectories: those numbers, int ``[N]``, for a storage that will not change.
        cache_values: given for compatibility; trajectories are always kept until rows are written.
        truncated_key: where the last row of each slice is marked, for value estimators that must
            not look past it; the done flag beside it is set too. None marks nothing.
        strict_length: leave out trajectories shorter than a slice; otherwise they are drawn whole
            and the batch is shorter than asked for.
        pad_output: repeat the last row of a short slice up to the full length, and mark the rows
            that are real in ``("collector", "mask")``.
        span: how many rows of a slice may lie before its trajectory (left) and behind it (right),
            and are left out; one value, or one for each side; True for all but one.

    Raises:
        TypeError: more than one way, or none, to say where slices are cut.
        UsageError: a number below 1.
    """

    ran_out = False

    def __init__(
        self,
        *,
        num_slices: int | None = None,
        slice_len: int | None = None,
        end_key: NestedKey | None = None,
        traj_key: NestedKey | None = None,
        trajectory_key: NestedKey | None = None,
        ends: torch.Tensor | None = None,
        trajectories: torch.Tensor | None = None,
        cache_values: bool = False,
        truncated_key: NestedKey | None = ("next", "truncated"),
        strict_length: bool = True,
        pad_output: bool = False,
        span: Span | tuple[Span, Span] = False,
    ) -> None:
        if (num_slices is None) == (slice_len is None):
            raise TypeError("Give either num_slices or slice_len.")
        if (
            sum(
                given is not None
                for given in (end_key, traj_key, trajectory_key, ends, trajectories)
            )
            > 1
        ):
            raise TypeError("Give one of end_key, traj_key, ends and trajectories.")
        if any(size is not None and size < 1 for size in (num_slices, slice_len)):
            raise UsageError("num_slices and slice_len count from 1.")
        self.num_slices = num_slices
        self.slice_len = slice_len
        self.strict_length = strict_length
        self.truncated_key = None if truncated_key is None else key_of(truncated_key)
        self._pad_output = pad_output
        self._span = span if isinstance(span, tuple) else (span, span)
        if len(self._span) != 2 or not all(isinstance(side, int) for side in self._span):
            raise UsageError(f"A span is a number, or one for each side, not {span!r}.")
        number_key = traj_key if traj_key is not None else trajectory_key
        self._keys = tuple(None if key is None else key_of(key) for key in (number_key, end_key))
        self._runs: Runs | None = None
        if ends is not None:
            self._runs = runs_of(ends.reshape(-1, 1).bool(), 0)
        elif trajectories is not None:
            number = trajectories.reshape(-1, 1)
            self._runs = runs_of(number != number.roll(-1, 0), 0)
        self._prepared: tuple[Any, ...] = ()

    def sample(
        self, storage: Storage, batch_size: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return row numbers int64 ``[B]``, slice after slice, and the marks of slice ends.

        Raises:
            UsageError: the batch is not a whole number of slices, or no trajectory is long enough.
        """
        num_slices, slice_len = self.shape(batch_size)
        cuts = self.prepare(storage, slice_len)
        drawn = torch.randint(len(cuts), (num_slices,), generator=generator)
        return self.draw(cuts, drawn, generator)

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

    def runs(self, storage: Storage) -> Runs:
        """Return the trajectories of a storage.

        Raises:
            UsageError: ``ends`` or ``trajectories`` are not as many as its rows.
        """
        if self._runs is None:
            return storage.runs(*self._keys)
        if self._runs.capacity != len(storage):
            raise UsageError(
                f"There are trajectories of {self._runs.capacity} rows, and {len(storage)} rows."
            )
        return self._runs

    def prepare(self, storage: Storage, slice_len: int) -> Cuts:
        """Return the slices that can be drawn from a storage; worked out once after each write."""
        asked = (storage, storage.revision, slice_len)
        if self._prepared[:3] != asked:
            cuts = Cuts(self.runs(storage), slice_len, self.strict_length, self._span)
            self._prepared = (*asked, cuts)
        found = self._prepared[3]
        assert isinstance(found, Cuts)
        return found

    def draw(
        self, cuts: Cuts, drawn: torch.Tensor, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return a random slice of each trajectory ``drawn`` int64 ``[S]``, with its marks."""
        index, last, real = cuts.draw(drawn, generator, pad=self._pad_output)
        info: Info = {}
        if self.truncated_key is not None:
            info[self.truncated_key] = last
        if real is not None:
            info["collector", "mask"] = real
        return index, info

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_prepared": ()}  # worked out again from the storage

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
        cuts = self._slices.prepare(storage, slice_len)
        drawn = self._epoch.take(num_slices, len(cuts), generator)
        return self._slices.draw(cuts, drawn, generator)

    @property
    def truncated_key(self) -> Key | None:
        """Where slice ends are marked."""
        return self._slices.truncated_key

    def emptied(self) -> None:
        """Begin an epoch anew."""
        self._epoch.begin()

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch's seed and position."""
        return self._epoch.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on in the middle of the epoch that ``state`` names."""
        self._epoch.load_state_dict(state)
