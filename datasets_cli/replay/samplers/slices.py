"""Samplers of slices: each drawn item is a run of consecutive rows of one trajectory."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch

from datasets_cli.core.options import part_of
from datasets_cli.errors import EmptyBuffer, UsageError, WrongRows, WrongSize, wrong_value
from datasets_cli.replay.arguments import NestedKey, StateDict, optional_key, whole_number
from datasets_cli.replay.samplers.protocol import Draw, Info
from datasets_cli.replay.samplers.rows import DrawSampler, SingleRows
from datasets_cli.replay.samplers.slice_windows import (
    Overhang,
    SliceBegins,
    SliceWindows,
    begin_flags,
)
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.trajectories.bounds import (
    FROM_STORAGE,
    TrajectoryIndex,
    TrajectoryKeys,
    TrajectorySource,
)
from datasets_cli.schema.shapes import RowNumbers

MASK = ("collector", "mask")


@dataclass(frozen=True, kw_only=True)
class SliceOptions:
    """The size of the slices in a batch; ``SliceSampler`` documents each field."""

    num_slices: int | None = None
    slice_len: int | None = None
    strict_length: bool = True

    @property
    def has_slices(self) -> bool:
        """Whether batches consist of slices."""
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
        # Not super(): PrioritizedSliceSampler has another class next, with other arguments.
        DrawSampler.__init__(self, draw)
        if (num_slices is None) == (slice_len is None):
            raise UsageError(
                f"Slices need either num_slices or slice_len; found num_slices={num_slices!r}, "
                f"slice_len={slice_len!r}.",
                argument="slice_len",
                found=slice_len,
                advice="Pass num_slices, the slices in a batch, or slice_len, the rows in a slice.",
            )
        self.num_slices = None if num_slices is None else whole_number("num_slices", num_slices, 1)
        self.slice_len = None if slice_len is None else whole_number("slice_len", slice_len, 1)
        self.trajectories = trajectories
        self.strict_length = strict_length
        self.pad_output = pad_output
        sides = tuple(span) if isinstance(span, tuple | list) else (span, span)
        if len(sides) != 2 or not all(isinstance(side, int) for side in sides):
            raise wrong_value("span", "a number, or one for each side", span)
        self.span: tuple[Overhang, Overhang] = (sides[0], sides[1])
        self.truncated_key = optional_key(truncated_key)
        self.init_key = optional_key(init_key)
        self.supports_lookahead = draw.is_independent
        self._windows: tuple[Storage, int, int, SliceWindows] | None = None

    def __repr__(self) -> str:
        size = "num_slices" if self.num_slices else "slice_len"
        draw = f"{self.draw!r}, " if type(self) is Slices else ""  # others are named after it
        return f"{type(self).__name__}({draw}{size}={self.num_slices or self.slice_len})"

    @property
    def version(self) -> Hashable:
        """The version of the draw, and the keys of the flags, which can be set."""
        return self.truncated_key, self.init_key, self.draw.version

    def sample(
        self, storage: Storage, batch_size: int, generator: torch.Generator
    ) -> tuple[RowNumbers, Info]:
        """Return row numbers, slice after slice, and the flags of slice ends.

        Raises:
            WrongSize: the batch is not a whole number of slices, or no trajectory is long enough.
        """
        num_slices, slice_len = self.shape(batch_size)
        windows = self.windows(storage, slice_len)
        begins, info = self.draw.take_slices(storage, windows, num_slices, generator)
        self.ran_out = self.draw.ran_out
        return self._cut(storage, windows, begins, info)

    def ahead(
        self, storage: Storage, batch_size: int, count: int, generator: torch.Generator | None
    ) -> tuple[RowNumbers, Info] | None:
        """Return the rows of ``count`` batches; see ``AheadSampler.ahead``.

        None if slices can have different lengths.
        """
        num_slices, slice_len = self.shape(batch_size)
        windows = self.windows(storage, slice_len)
        if not (windows.are_full or self.pad_output):
            return None
        begins = self.draw.slices_ahead(storage, windows, num_slices, count, generator)
        return None if begins is None else self._cut(storage, windows, begins, {})

    def shape(self, batch_size: int) -> tuple[int, int]:
        """Return the number of slices in a batch, and the rows in each."""
        divisor = self.num_slices or self.slice_len
        assert divisor is not None
        if batch_size % divisor or batch_size < divisor:
            name = "num_slices" if self.num_slices else "slice_len"
            raise wrong_value(
                "batch_size",
                f"a multiple of {name}={divisor}",
                batch_size,
                f"Pass, for example, {max(1, batch_size // divisor) * divisor}.",
                kind=WrongSize,
            )
        if self.num_slices:
            return self.num_slices, batch_size // self.num_slices
        return batch_size // divisor, divisor

    def check(self, storage: Storage, batch_size: int | None) -> None:
        """Raise ``WrongSize`` if no trajectory of a dataset is as long as a slice."""
        if not len(storage) or not hasattr(storage, "offsets") or self.trajectories != FROM_STORAGE:
            return  # without a table of trajectories, the check would read every row
        rows = batch_size or 0
        slice_len = self.slice_len or (self.num_slices and rows // self.num_slices)
        if slice_len:
            self.windows(storage, slice_len)

    def windows(self, storage: Storage, slice_len: int) -> SliceWindows:
        """Return the slices that can be drawn from a storage; cached until the next write."""
        cached, key = self._windows, (storage, storage.revision, slice_len)
        if cached is None or cached[:3] != key:
            trajectories = trajectories_of(storage, self.trajectories)
            windows = SliceWindows(trajectories, slice_len, self.strict_length, self.span)
            self._windows = cached = (*key, windows)
        return cached[3]

    def _cut(
        self, storage: Storage, windows: SliceWindows, begins: SliceBegins, of_slices: Info
    ) -> tuple[RowNumbers, Info]:
        """Return the rows of slices, and their info: that of each slice, repeated for its rows."""
        index, last, real = windows.rows(begins, pad=self.pad_output)
        info: Info = {}
        if of_slices:
            first, lengths = begins
            repeats = len(index) // len(first) if lengths is None or self.pad_output else lengths
            for key, values in of_slices.items():
                info[key] = torch.repeat_interleave(values, repeats)
        if self.truncated_key is not None:
            info[self.truncated_key] = last
        if self.init_key is not None and storage.has(self.init_key):
            info[self.init_key] = begin_flags(last, real)
        if real is not None:
            info[MASK] = real
        return index, info

    def __getstate__(self) -> StateDict:
        return {**self.__dict__, "_windows": None}  # computed again from the storage


def sampler_of(draw: Draw, options: SliceOptions) -> DrawSampler:
    """Return a sampler with the given draw: of slices if their size is set, otherwise of rows."""
    if options.has_slices:
        return Slices(draw, **vars(part_of(options, SliceOptions)))
    return SingleRows(draw)


def trajectories_of(storage: Storage, trajectories: TrajectorySource) -> TrajectoryIndex:
    """Return the trajectories of a storage: by its columns, or by a fixed index."""
    if not len(storage):
        raise EmptyBuffer(storage.no_rows)
    if isinstance(trajectories, TrajectoryKeys):
        return storage.trajectories(trajectories)
    indexed = trajectories.capacity, trajectories.stride
    stored = len(storage), storage.width
    if indexed != stored:
        raise WrongRows(
            f"trajectories= indexes {indexed[0]} rows, {indexed[1]} a step; the storage has "
            f"{stored[0]} rows, {stored[1]} a step.",
            argument="trajectories",
            expected=stored,
            found=indexed,
            advice="Pass the trajectories of this storage.",
        )
    return trajectories
