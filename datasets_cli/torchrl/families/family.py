"""What the classes of all families share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

from datasets_cli.catalogue.entries import catalogue
from datasets_cli.catalogue.registry import load_recipe
from datasets_cli.config import load_config
from datasets_cli.errors import UsageError
from datasets_cli.experience.options import TrajectoryDatasetOptions
from datasets_cli.experience.replay import ExperienceReplay
from datasets_cli.options import part_of
from datasets_cli.replay.buffers.readable import choose_format
from datasets_cli.replay.draws.slices import SliceOptions
from datasets_cli.replay.rows.row_numbers import rows_at
from datasets_cli.replay.rows.writers import ImmutableDatasetWriter
from datasets_cli.replay.storages.tensors import TensorStorage
from datasets_cli.replay.trajectories.split import split_trajectories
from datasets_cli.replay.transforms.compose import Compose
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.torchrl.slice_samplers import SliceSampler, SliceSamplerWithoutReplacement

Options = TypeVar("Options", bound=TrajectoryDatasetOptions)

ALTERNATIVES = {
    "from_env=True": "Rows are read from the published file.",
    "use_truncated_as_done=False": "TED's done is terminated or truncated; read next.terminated.",
    "terminate_on_end=True": "The end of a trajectory that did not terminate is truncated.",
}


class DatasetNames(list[str]):
    """The names of a family's datasets; their full ids, and those of variants, are in it, too."""

    def __init__(self, family: str, names: Iterable[str]) -> None:
        super().__init__(names)
        self._family = family

    def __contains__(self, name: object) -> bool:
        if isinstance(name, str):
            name = name.removeprefix(f"{self._family}/").partition("~")[0]
        return super().__contains__(name)


class AvailableDatasets:
    """A list of the family's names, read when it is asked for."""

    def __get__(self, instance: Any, owner: type[ExperienceReplay]) -> DatasetNames:
        assert owner.family is not None, "a class of a family has its name"
        entries = catalogue(load_recipe(owner.family), CacheRoot(load_config().root))
        return DatasetNames(owner.family, sorted(entries))


def with_slices(options: Options) -> Options:
    """Return options with TorchRL's sampler of slices, where batches are made of some."""
    if options.sampler is not None or not options.has_slices:
        return options
    kind = SliceSampler if options.replacement else SliceSamplerWithoutReplacement
    sampler = kind(**vars(part_of(options, SliceOptions)))
    return replace(options, sampler=sampler, replacement=True, num_slices=None, slice_len=None)


def open_split(replay: ExperienceReplay, options: TrajectoryDatasetOptions) -> None:
    """Open a dataset to draw whole trajectories ``[T_max]``, padded, in place of rows."""
    # They are copies in memory; `("mask",)` says what is not padding.
    replay._open(replace(options, transform=None, format="torch", cast=False))
    if replay.reader.sampler.has_slices:
        raise UsageError(
            f"{type(replay).__name__} draws whole trajectories with split_trajs=True, and no "
            "slices of them. Crop them with RandomCropTensorDict, or leave out split_trajs."
        )
    rows = rows_at(replay.reader.storage, slice(None))
    replay.set_storage(TensorStorage(split_trajectories(rows, trajectory_key="episode")))
    replay.set_writer(ImmutableDatasetWriter())
    for step in Compose(options.transform or []):
        replay.append_transform(step)
    replay._use_format(choose_format(options.format, cast=options.cast))


def refuse(argument: str, is_given: bool) -> None:
    """Refuse a value of an argument of TorchRL's that would mean something else here."""
    if is_given:
        raise UsageError(f"{argument} is not possible. {ALTERNATIVES[argument]}")
