"""Options of datasets as replay buffers."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar

from datasets_cli.core.options import check_choice
from datasets_cli.core.progress import ProgressOptions
from datasets_cli.replay.batches.formats import BatchFormat
from datasets_cli.replay.buffer.buffer import (
    DTYPES,
    DrawOptions,
    TensorDictBatchOptions,
    choose_format,
)
from datasets_cli.replay.samplers.epochs import Epochs
from datasets_cli.replay.samplers.protocol import Sampler, Uniform
from datasets_cli.replay.samplers.rows import RandomSampler, SamplerWithoutReplacement
from datasets_cli.replay.samplers.slices import SliceOptions, sampler_of
from datasets_cli.replay.storages.options import SequenceOptions, StorageOptions
from datasets_cli.replay.writing.writers import Writer


@dataclass(frozen=True, kw_only=True)
class DatasetOptions(ProgressOptions, StorageOptions, TensorDictBatchOptions):
    """How a dataset is found, installed and sampled; ``ExperienceReplay`` documents each field."""

    FIRST: ClassVar = (
        *("root", "download", "layout", "sampler", "num_slices", "slice_len", "strict_length"),
        *("replacement", "transform", "prefetch", "pin_memory", "device", "seed", "generator"),
        *("format", "cast", "columns", "text", "contiguous"),
    )
    """What users give most."""

    root: str | os.PathLike[str] | None = None
    download: bool | str = True
    layout: str | None = None
    source: str | None = None
    replacement: bool = True
    writer: Writer | None = None
    repaired: bool = False
    audit: str = "warn"
    view: str | None = None


@dataclass(frozen=True)
class TrajectoryDatasetOptions(DatasetOptions, SliceOptions):
    """How a dataset with trajectories is opened; ``ExperienceReplay`` documents each field."""

    dataset_id: str | os.PathLike[str]
    batch_size: int | None = None
    _: KW_ONLY
    frame_stack: int | None = None

    def chosen_sampler(self) -> Sampler:
        """Return the sampler of the options: ``sampler``, or one for rows, slices or epochs."""
        if self.sampler is not None:
            warn_of_override(self.replacement, num_slices=self.num_slices, slice_len=self.slice_len)
            return self.sampler
        if not self.has_slices:
            return row_sampler(self.replacement)
        return sampler_of(Uniform() if self.replacement else Epochs(), self)


@dataclass(frozen=True, kw_only=True)
class OpenOptions(TrajectoryDatasetOptions):
    """How a dataset of any family is opened; ``ExperienceReplay`` documents each field."""

    options: Mapping[str, str] | None = None
    num_workers: int | None = 0


@dataclass(frozen=True)
class SequenceBufferOptions(SequenceOptions, DrawOptions):
    """What ``ExperienceReplay.sequences`` takes.

    Args:
        length: T.
        batch_size: sequences in a batch; ``sample`` can override it.
        replacement: draw with replacement; otherwise each row begins a sequence once an epoch.
        sampler: draws the rows that sequences begin with; overrides ``replacement``.
        transform: applied to every batch; this buffer's own and its ``collate_fn`` by default.
        generator: draws them; one of that buffer's own by default.
        seed: seeds that.
        format: the format of batches; by default the format of this buffer.
        cast: see ``ReplayBuffer.with_format``.
    """

    length: int
    batch_size: int | None = None
    _: KW_ONLY
    replacement: bool = True
    format: str | None = None
    cast: bool = field(default=False, metadata={"instead": DTYPES})

    def chosen_format(self, default: BatchFormat | None) -> BatchFormat | None:
        """Return the format of the options, or the default."""
        return choose_format(self.format, cast=self.cast) if self.format else default


START_METHODS = ("fork", "spawn", "forkserver")


def check_start_method(method: str) -> None:
    """Check a start method of processes; warn unless it is the one that is used, ``"spawn"``."""
    check_choice("mp_start_method", method, START_METHODS)
    if method != "spawn":
        warnings.warn(
            f"mp_start_method={method!r} has no effect: processes are spawned, because one "
            "that is forked after torch began threads may hang. Leave it out.",
            stacklevel=5,  # the caller of preprocess, or of AtariDQNExperienceReplay
        )


def warn_of_override(replacement: bool, **sizes: int | None) -> None:
    """Warn of arguments that ``sampler`` overrides."""
    named = ["replacement=False"] * (not replacement)
    named += [f"{name}={size}" for name, size in sizes.items() if size is not None]
    if named:
        warnings.warn(
            f"{' and '.join(named)} without an effect: sampler= overrides it. Leave out either.",
            stacklevel=6,
        )


def row_sampler(replacement: bool) -> Sampler:
    """Return the sampler of rows, which draws them with replacement or each once an epoch."""
    return RandomSampler() if replacement else SamplerWithoutReplacement()
