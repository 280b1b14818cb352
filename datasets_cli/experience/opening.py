"""Opening a dataset by its id, which may install it first, or by its folder; and the options."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar

from datasets_cli.audit.report import load_report
from datasets_cli.config import Config
from datasets_cli.core.options import check_choice
from datasets_cli.core.progress import ProgressOptions
from datasets_cli.core.progress_display import displayed
from datasets_cli.errors import DamagedDataset, IntegrityError, KnownDefect, UsageError
from datasets_cli.formats.limits import raised_limits
from datasets_cli.install.find import (
    check_folder,
    check_layout_of,
    folder_and_id,
    installed_id,
    is_installed_already,
)
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.parallel.engine import Workers
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
from datasets_cli.replay.storages.dataset import DatasetStorage, reopen_storage
from datasets_cli.replay.storages.options import SequenceOptions, StorageOptions
from datasets_cli.replay.writing.writers import Writer
from datasets_cli.store.cache_root import CacheRoot, has_manifest
from datasets_cli.store.dataset import Accept, warn_caller
from datasets_cli.store.manifest import LAYOUTS, Manifest


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


def open_or_install(
    id: str,
    config: Config,
    options: DatasetOptions,
    variant: Mapping[str, str] | None = None,
    num_workers: int | None = 0,
) -> DatasetStorage:
    """Open the rows of a dataset, installed first if it is missing or ``download="force"``."""
    # The short way for an installed dataset without further options.
    has_options = (
        variant or options.source is not None or options.download == "force" or num_workers
    )
    is_plain = not has_options and num_workers is not None and options.layout in (None, *LAYOUTS)
    if is_plain and has_manifest(folder := CacheRoot(config.root).dataset(id)):
        rows = _open(
            folder, partial(check_layout_of, id=id, layout=options.layout), config, options
        )
        return _without_defects(rows, config, options.audit)
    install_options = InstallOptions(
        layout=options.layout,
        force=options.download == "force",
        source=options.source,
        options=variant or {},
        workers=Workers(num_workers=num_workers),
    )
    rows = _open(*_find(id, config, options, install_options), config, options)
    return _without_defects(rows, config, options.audit)


def open_folder(
    folder: Path, config: Config, options: DatasetOptions, variant: Mapping[str, str] | None
) -> DatasetStorage:
    """Open the rows of a dataset's folder, inside or outside the cache root."""
    install_options = {
        "options": bool(variant),
        "source": options.source is not None,
        "download": options.download == "force",
    }
    if names := [name for name, is_set in install_options.items() if is_set]:
        raise UsageError(
            f"{', '.join(names)} cannot be combined with a folder, {folder}, which is only opened.",
            argument=names[0],
            path=folder,
            advice="Leave them out, or pass an id.",
        )
    check_folder(folder)

    def accept(manifest: Manifest) -> None:
        check_layout_of(manifest, manifest.id, options.layout)

    rows = _open(folder.absolute(), accept, config, options)
    return _without_defects(rows, config, options.audit)


def open_rows(
    id: str | os.PathLike[str], config: Config, options: StorageOptions
) -> DatasetStorage:
    """Open the rows of an installed dataset, or of a folder."""
    folder, id = folder_and_id(id, config)
    return _open(folder, partial(check_layout_of, id=id, layout=None), config, options)


def _find(
    id: str, config: Config, options: DatasetOptions, install_options: InstallOptions
) -> tuple[Path, Accept | None]:
    """Return the folder of a dataset, and the check of its manifest."""
    if options.download is False:
        id = installed_id(id, config, install_options.options)
    elif not is_installed_already(id, config, install_options):
        with displayed(options.progress) as progress:
            return install_dataset(id, config, install_options, progress=progress).path, None
    accept = partial(check_layout_of, id=id, layout=install_options.layout)
    return CacheRoot(config.root).dataset(id), accept


def _open(
    folder: Path, accept: Accept | None, config: Config, options: StorageOptions
) -> DatasetStorage:
    try:
        with raised_limits(dict(config.limits)) if config.limits else nullcontext():
            rows = reopen_storage(folder, options, accept)
    except PermissionError as error:
        raise DamagedDataset(
            f"{folder} cannot be read: {error.strerror}.",
            path=folder,
            advice="Check its permissions.",
        ) from error
    rows.dataset.warn_if_unverified()
    return rows


def _without_defects(rows: DatasetStorage, config: Config, audit: str) -> DatasetStorage:
    """Return the rows; warn of known defects, or raise, if the audit found any."""
    check_choice("audit", audit, ("warn", "raise", "ignore"))
    id = rows.dataset.id
    if audit == "ignore" or (audit == "warn" and id in _WARNED):
        return rows
    report = load_report(CacheRoot(config.root), rows.dataset.content)
    if report is None or not (wrong := report.at_least("wrong")):
        return rows
    text = f"{id} has defects: {' '.join(f'{each.rule}: {each}.' for each in wrong)}"
    if audit == "raise":
        raise IntegrityError(
            text, id=id, advice=f"Open it with audit='ignore', or see rlds audit {id}."
        )
    _WARNED.add(id)
    warn_caller(f"{text} See rlds audit {id}; audit='ignore' disables this warning.", KnownDefect)
    return rows


_WARNED: set[str] = set()
"""Ids of datasets with a warning of defects in this process."""
