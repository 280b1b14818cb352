"""Samplers of slices: a draw, of which each item is a run of consecutive rows of one trajectory."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch

from datasets_cli.errors import EmptyBuffer, UsageError
from datasets_cli.options import part_of
from datasets_cli.replay.arguments import NestedKey, StateDict, optional_key, whole_number
from datasets_cli.replay.samplers.protocol import Draw, Info, SliceBegins
from datasets_cli.replay.samplers.rows import DrawSampler, SingleRows
from datasets_cli.replay.samplers.windows import Overhang, SliceWindows, slice_begins
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.trajectories.bounds import (
    FROM_STORAGE,
    TrajectoryIndex,
    TrajectoryKeys,
    TrajectorySource,
)

MASK = ("collector", "mask")


@dataclass(frozen=True, kw_only=True)
class SliceOptions:
    """The slices that batches are made of, if any; ``SliceSampler`` documents each field."""

    num_slices: int | None = None
    slice_len: int | None = None
    strict_length: bool = True

    @property
    def has_slices(self) -> bool:
        """Whether batches are made of slices."""
        return self.num_slices is not None or self.slice_len is not None


class Slices(DrawSampler):
    """Draws runs of consecutive rows, each within one trajectory."""

    items = "slices"
    has_slices = True

    def __init__(
        self,
        draw: Draw,
        *,
        num_slices: int | None = None,
        slice_len: int | None = None,
        trajectories: TrajectorySource = FROM_STORAGE,
        strict_length: bool = True,
        pad_output: bool = False,
        span: Overhang | Sequence[Overhang] = False,
        truncated_key: NestedKey | None = ("next", "truncated"),
        init_key: NestedKey | None = "is_init",
    ) -> None:
        DrawSampler.__init__(self, draw)  # not the next class of a sampler that is of rows, too
        if (num_slices is None) == (slice_len is None):
            raise UsageError(
                "Give either num_slices or slice_len: how many slices a batch has, or of how many "
                f"rows each is; found num_slices={num_slices!r}, slice_len={slice_len!r}."
            )
        self.num_slices = None if num_slices is None else whole_number("num_slices", num_slices, 1)
        self.slice_len = None if slice_len is None else whole_number("slice_len", slice_len, 1)
        self.trajectories = trajectories
        self.strict_length = strict_length
        self.pad_output = pad_output
        sides = tuple(span) if isinstance(span, tuple | list) else (span, span)
        if len(sides) != 2 or not all(isinstance(side, int) for side in sides):
            raise UsageError(f"A span is a number, or one for each side, not {span!r}.")
        self.span: tuple[Overhang, Overhang] = (sides[0], sides[1])
        self.truncated_key = optional_key(truncated_key)
        self.init_key = optional_key(init_key)
        self.supports_lookahead = type(draw).slices_ahead is not Draw.slices_ahead
        self._windows: tuple[Storage, int, int, SliceWindows] | None = None

    def __repr__(self) -> str:
        size = "num_slices" if self.num_slices else "slice_len"
        draw = f"{self.draw!r}, " if type(self) is Slices else ""  # others are named after it
        return f"{type(self).__name__}({draw}{size}={self.num_slices or self.slice_len})"

    @property
    def version(self) -> Hashable:
        """Where the draws stand, and the keys of the marks, which can be set."""
        return self.truncated_key, self.init_key, self.draw.version

    def sample(
        self, storage: Storage, batch_size: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return row numbers int64 ``[B]``, slice after slice, and the marks of slice ends.

        Raises:
            UsageError: the batch is not a whole number of slices, or no trajectory is long enough.
        """
        num_slices, slice_len = self.shape(batch_size)
        windows = self.windows(storage, slice_len)
        begins, info = self.draw.take_slices(storage, windows, num_slices, generator)
        self.ran_out = self.draw.ran_out
        return self._cut(storage, windows, begins, info)

    def ahead(
        self, storage: Storage, batch_size: int, count: int, generator: torch.Generator | None
    ) -> tuple[torch.Tensor, Info] | None:
        """Return the rows of ``count`` batches; see ``AheadSampler.ahead``.

        None where slices may be shorter than others.
        """
        num_slices, slice_len = self.shape(batch_size)
        windows = self.windows(storage, slice_len)
        if not (windows.are_full or self.pad_output):
            return None
        begins = self.draw.slices_ahead(storage, windows, num_slices, count, generator)
        return None if begins is None else self._cut(storage, windows, begins, {})

    def shape(self, batch_size: int) -> tuple[int, int]:
        """Return how many slices of how many rows a batch is made of."""
        divisor = self.num_slices or self.slice_len
        assert divisor is not None
        if batch_size % divisor or batch_size < divisor:
            argument = "num_slices" if self.num_slices else "slice_len"
            raise UsageError(
                f"A batch of {batch_size} cannot be cut by {argument}={divisor}: the batch size "
                f"must be a multiple of it, such as {max(1, batch_size // divisor) * divisor}."
            )
        if self.num_slices:
            return self.num_slices, batch_size // self.num_slices
        return batch_size // divisor, divisor

    def check(self, storage: Storage, batch_size: int | None) -> None:
        """Check that a dataset has slices of the length that batches will have."""
        if not len(storage) or not hasattr(storage, "offsets") or self.trajectories != FROM_STORAGE:
            return  # or every row would have to be read
        rows = batch_size or 0
        slice_len = self.slice_len or (self.num_slices and rows // self.num_slices)
        if slice_len:
            self.windows(storage, slice_len)

    def windows(self, storage: Storage, slice_len: int) -> SliceWindows:
        """Return the slices of a storage that can be drawn; worked out once after each write."""
        known, asked = self._windows, (storage, storage.revision, slice_len)
        if known is None or known[:3] != asked:
            trajectories = trajectories_of(storage, self.trajectories)
            windows = SliceWindows(trajectories, slice_len, self.strict_length, self.span)
            self._windows = known = (*asked, windows)
        return known[3]

    def _cut(
        self, storage: Storage, windows: SliceWindows, begins: SliceBegins, of_slices: Info
    ) -> tuple[torch.Tensor, Info]:
        """Return the rows of slices, and what is said of them: of each what its slice was."""
        index, last, real = windows.rows(*begins, pad=self.pad_output)
        info: Info = {}
        if of_slices:
            first, lengths = begins
            repeats = len(index) // len(first) if lengths is None or self.pad_output else lengths
            for key, values in of_slices.items():
                info[key] = torch.repeat_interleave(values, repeats)
        if self.truncated_key is not None:
            info[self.truncated_key] = last
        if self.init_key is not None and storage.has(self.init_key):
            info[self.init_key] = slice_begins(last, real)
        if real is not None:
            info[MASK] = real
        return index, info

    def __getstate__(self) -> StateDict:
        return {**self.__dict__, "_windows": None}  # worked out again from the storage


def sampler_of(draw: Draw, options: SliceOptions) -> DrawSampler:
    """Return a sampler of what is drawn: slices, where batches are made of some, or rows."""
    if options.has_slices:
        return Slices(draw, **vars(part_of(options, SliceOptions)))
    return SingleRows(draw)


def trajectories_of(storage: Storage, trajectories: TrajectorySource) -> TrajectoryIndex:
    """Return the trajectories of a storage."""
    if not len(storage):
        raise EmptyBuffer(storage.no_rows)
    if isinstance(trajectories, TrajectoryKeys):
        return storage.trajectories(trajectories)
    given = trajectories.capacity, trajectories.stride
    present = len(storage), storage.width
    if given != present:
        raise UsageError(
            f"The trajectories given are those of {given[0]} rows, {given[1]} a step; the "
            f"storage has {present[0]} rows, {present[1]} a step."
        )
    return trajectories
