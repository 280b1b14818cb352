"""What a dataset as a replay buffer takes: of any family, and of those with trajectories."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar

from datasets_cli.progress import ProgressOptions
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
    """How a dataset is found, installed, and drawn from.

    Args:
        root: the cache root; ``RLDS_HOME`` or the user's cache by default.
        download: install what is missing (True), fail instead (False), or install again
            (``"force"``; the good copy stays until the new one is committed).
        layout: how the rows are stored on disk; ``"ted"`` or ``"compact"``.
        source: a folder or URL with the publisher's raw files.
        sampler: how rows are drawn; overrides ``replacement``, and the arguments of slices.
        replacement: draw with replacement; otherwise each row (or trajectory) once an epoch.
        transform: applied to every batch.
        writer: refuses rows, as does any other writer of a dataset.
        repaired: open ``ID~repaired``, the same file with the repairs that follow from it exactly,
            and never ``ID`` in its place.
        audit: what becomes of rows in which the audit found something wrong: ``"warn"`` tells it
            once, as ``KnownDefect``; ``"raise"`` refuses the dataset; ``"ignore"`` opens it.
        view: only what this leaves, as ``filter``: ``"first-success"`` or ``"return > 300"``.
        collate_fn: called with the batch, before the transform.
        generator: draws rows, exclusive with ``seed``; by default one of the buffer's own, which
            torch's global one seeds at the first draw.
    """

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
    """What the datasets of every family with trajectories take.

    Args:
        dataset_id: ``family/name``; the family may be left out where the name is unique. Every
            class of a family opens ``demo/name`` too. Or the file of a view, ``best.json``, which
            ``save`` wrote: then the view of its dataset is opened. Or the folder of a dataset,
            wherever it is, as a path that begins with / or a full stop: it is opened, read-only.
        batch_size: rows in a batch; ``sample`` can override it.
        frame_stack: make each observation, and next observation, a stack of its last steps.
    """

    dataset_id: str | os.PathLike[str]
    batch_size: int | None = None
    _: KW_ONLY
    frame_stack: int | None = None

    def chosen_sampler(self) -> Sampler:
        """Return the sampler that is given, or that the other options describe."""
        if self.sampler is not None:
            warn_of_override(self.replacement, num_slices=self.num_slices, slice_len=self.slice_len)
            return self.sampler
        if not self.has_slices:
            return row_sampler(self.replacement)
        return sampler_of(Uniform() if self.replacement else Epochs(), self)


@dataclass(frozen=True, kw_only=True)
class OpenOptions(TrajectoryDatasetOptions):
    """What ``ExperienceReplay`` takes.

    Args:
        options: of the family, which make a variant of the dataset.
        num_workers: processes that convert what can be converted in parts; all cores where None,
            this process where 0.
    """

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
        format: what batches are made of; as those of this buffer by default.
        cast: of ``format``, as in ``ReplayBuffer.with_format``.
    """

    length: int
    batch_size: int | None = None
    _: KW_ONLY
    replacement: bool = True
    format: str | None = None
    cast: bool = field(default=False, metadata={"instead": DTYPES})

    def chosen_format(self, default: BatchFormat | None) -> BatchFormat | None:
        """Return the format that is given, or another one."""
        return choose_format(self.format, cast=self.cast) if self.format else default


def warn_of_override(replacement: bool, **sizes: int | None) -> None:
    """Warn of what is given beside a sampler, which draws by itself."""
    named = ["replacement=False"] * (not replacement)
    named += [f"{name}={size}" for name, size in sizes.items() if size is not None]
    if named:
        warnings.warn(
            f"{' and '.join(named)} without an effect: the sampler that is given draws by itself. "
            "Leave out one or the other.",
            stacklevel=6,
        )


def row_sampler(replacement: bool) -> Sampler:
    """Return the sampler of rows, which draws them with replacement or each once an epoch."""
    return RandomSampler() if replacement else SamplerWithoutReplacement()
