"""The classes of the families D4RL, Atari and OpenML, and the parts that all families share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import torch
from tensordict import TensorDict

from datasets_cli.catalogue.entries import catalogue, load_recipe
from datasets_cli.config import load_config
from datasets_cli.core.options import part_of, takes_fields
from datasets_cli.errors import Unsupported
from datasets_cli.experience.opening import (
    DatasetOptions,
    TrajectoryDatasetOptions,
    check_start_method,
)
from datasets_cli.experience.replay import ExperienceReplay
from datasets_cli.replay.batches.row_numbers import rows_at
from datasets_cli.replay.buffer.buffer import choose_format
from datasets_cli.replay.samplers.slices import SliceOptions
from datasets_cli.replay.storages.options import PreviousRewardOptions
from datasets_cli.replay.storages.tensors import TensorStorage
from datasets_cli.replay.trajectories.split import split_trajectories
from datasets_cli.replay.transforms.transform import Compose
from datasets_cli.replay.writing.writers import ImmutableDatasetWriter
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.torchrl.keywords import accepts_keywords
from datasets_cli.torchrl.slice_samplers import SliceSampler, SliceSamplerWithoutReplacement

Options = TypeVar("Options", bound=TrajectoryDatasetOptions)

ALTERNATIVES = {
    "from_env=True": "Leave it out: rows are read from the published file.",
    "use_truncated_as_done=False": "Read next.terminated: done is terminated or truncated.",
    "terminate_on_end=True": "Read next.truncated: it is True at the last row of a trajectory that "
    "did not terminate.",
}


class DatasetNames(list[str]):
    """The names of a family's datasets; ``in`` also accepts full ids and variants."""

    def __init__(self, family: str, names: Iterable[str]) -> None:
        super().__init__(names)
        self._family = family

    def __contains__(self, name: object) -> bool:
        if isinstance(name, str):
            name = name.removeprefix(f"{self._family}/").partition("~")[0]
        return super().__contains__(name)


class AvailableDatasets:
    """The list of a family's datasets, read from the catalogue on access."""

    def __get__(self, instance: Any, owner: type[ExperienceReplay]) -> DatasetNames:
        assert owner.family is not None, "a class of a family has its name"
        entries = catalogue(load_recipe(owner.family), CacheRoot(load_config().root))
        return DatasetNames(owner.family, sorted(entries))


def with_slices(options: Options) -> Options:
    """Return options with TorchRL's slice sampler if they set the size of slices."""
    if options.sampler is not None or not options.has_slices:
        return options
    kind = SliceSampler if options.replacement else SliceSamplerWithoutReplacement
    sampler = kind(**vars(part_of(options, SliceOptions)))
    return replace(options, sampler=sampler, replacement=True, num_slices=None, slice_len=None)


def open_split(replay: ExperienceReplay, options: TrajectoryDatasetOptions) -> None:
    """Open a dataset whose items are whole trajectories ``[T_max]``, padded, instead of rows."""
    # Trajectories are copied into memory; `("mask",)` is False in padding.
    replay._open(replace(options, transform=None, format="torch", cast=False))
    if replay.reader.sampler.has_slices:
        raise Unsupported(
            f"{type(replay).__name__} draws whole trajectories with split_trajs=True, not slices.",
            argument="split_trajs",
            found=True,
            advice="Crop trajectories with RandomCropTensorDict, or leave out split_trajs.",
        )
    rows = rows_at(replay.reader.storage, slice(None))
    replay.set_storage(TensorStorage(split_trajectories(rows, trajectory_key="episode")))
    replay.set_writer(ImmutableDatasetWriter())
    for step in Compose(options.transform or []):
        replay.append_transform(step)
    replay._use_format(choose_format(options.format, cast=options.cast))


def _reject(argument: str, is_rejected: bool) -> None:
    """Reject a value of a TorchRL argument that is not supported."""
    if is_rejected:
        name, _, value = argument.partition("=")
        raise Unsupported(
            f"{argument} is not supported.",
            argument=name,
            found=value == "True",
            advice=ALTERNATIVES[argument],
        )


@dataclass(frozen=True, kw_only=True)
class D4RLOptions(PreviousRewardOptions, TrajectoryDatasetOptions):
    """The arguments of ``D4RLExperienceReplay``; ``ExperienceReplay`` documents the rest.

    Args:
        dataset_id: the id, such as ``hopper-medium-v2``.
        split_trajs: draw whole trajectories ``[T_max]``, padded, with their ``mask``, instead of
            rows; trajectories are copied into memory.
        from_env: False.
        use_truncated_as_done: True.
        direct_download: ignored; only the published file is downloaded.
        terminate_on_end: False, or None.
    """

    split_trajs: bool = False
    from_env: bool = False
    use_truncated_as_done: bool = True
    direct_download: bool | None = None
    terminate_on_end: bool | None = None

    def __post_init__(self) -> None:
        _reject("from_env=True", self.from_env)
        _reject("use_truncated_as_done=False", not self.use_truncated_as_done)
        _reject("terminate_on_end=True", bool(self.terminate_on_end))


@accepts_keywords
class D4RLExperienceReplay(ExperienceReplay):
    """A D4RL dataset by its D4RL id, such as ``hopper-medium-v2``.

    ``split_trajs`` and the four arguments after it are TorchRL's; the last four accept one value
    each. Rows are read from the published file. A step at a time limit is done but not terminated.
    Rows also have ``reward``: the reward of the previous step, or 0 in the first row of a
    trajectory.

    Raises:
        UsageError: a value of a TorchRL argument is not supported.
        RldsError: as ``ExperienceReplay``.
    """

    family = "d4rl"
    available_datasets = AvailableDatasets()

    @takes_fields(D4RLOptions)
    def __init__(self, options: D4RLOptions) -> None:
        opened = with_slices(options)
        open_split(self, opened) if opened.split_trajs else self._open(opened)


@dataclass(frozen=True, kw_only=True)
class AtariOptions(TrajectoryDatasetOptions):
    """The arguments of ``AtariDQNExperienceReplay``; ``ExperienceReplay`` documents the rest.

    Args:
        dataset_id: the id, such as ``Pong/5``, ``Pong/5~ckpt0-5`` or ``Pong/5~unplugged``.
        checkpoints: ``"A:B"`` selects the checkpoints A to B - 1.
        upstream: ``"dqn_replay"``, ``"rl_unplugged"``, or ``"auto"``: the first that responds.
        num_procs: processes that convert the checkpoints; None for all cores, 0 for this process.
        strict_len: an alias of ``strict_length``.
        mp_start_method: ``"spawn"``; ``"fork"`` and ``"forkserver"`` warn and have no effect.
    """

    checkpoints: str | None = None
    upstream: str | None = None
    num_procs: int | None = 0
    strict_len: bool | None = None
    mp_start_method: str = "spawn"


@accepts_keywords
class AtariDQNExperienceReplay(ExperienceReplay):
    """A run of the DQN Replay Dataset by game and run, such as ``Pong/5``.

    Observations are single frames, uint8 ``[84, 84]``; ``frame_stack=4`` stacks them when batches
    are drawn. Rewards are clipped to [-1, 1], as the publisher recorded them.

    Raises:
        UsageError: arguments exclude one another, or are out of range.
        RldsError: as ``ExperienceReplay``.
    """

    family = "atari_dqn"
    available_datasets = AvailableDatasets()
    _max_runs: ClassVar[int | None] = None  # TorchRL's page sets it to limit the checkpoints

    @takes_fields(AtariOptions)
    def __init__(self, options: AtariOptions) -> None:
        check_start_method(options.mp_start_method)
        checkpoints = options.checkpoints
        if checkpoints is None and self._max_runs is not None:
            checkpoints = f"0:{self._max_runs}"
        requested = {"checkpoints": checkpoints, "upstream": options.upstream}
        variant = {name: value for name, value in requested.items() if value is not None}
        if options.strict_len is not None:
            options = replace(options, strict_length=options.strict_len)
        self._open(with_slices(options), variant, options.num_procs)

    @property
    def episodes(self) -> torch.Tensor:  # type: ignore[override]
        """The trajectory number of each row, int64 ``[N]``, as in TorchRL.

        ``iterate_episodes`` replaces the method ``ExperienceReplay.episodes``.
        """
        episodes: torch.Tensor = self.storage.column(("episode",))
        return episodes


@dataclass(frozen=True)
class OpenMLOptions(DatasetOptions):
    """The arguments of ``OpenMLExperienceReplay``; ``ExperienceReplay`` documents the rest.

    Args:
        name: the name, such as ``adult_onehot``, ``adult@2`` or ``61``.
        batch_size: rows in a batch; ``sample`` can override it.
        sampler: draws the rows of a batch; overrides ``replacement``.
    """

    name: str
    batch_size: int | None = None


@accepts_keywords
class OpenMLExperienceReplay(ExperienceReplay):
    """A table of OpenML by one of TorchRL's names, such as ``adult_onehot``, or by its id.

    Batches, and rows read by index, also have ``X`` and ``y``: TorchRL's names of ``observation``
    and ``action``, and the same tensors. A trajectory is one step, so batches cannot have slices.

    Raises:
        UsageError: arguments exclude one another, or are out of range.
        RldsError: as ``ExperienceReplay``.
    """

    family = "openml"
    available_datasets = AvailableDatasets()

    @takes_fields(OpenMLOptions)
    def __init__(self, options: OpenMLOptions) -> None:
        shared = vars(part_of(options, DatasetOptions))
        self._open(TrajectoryDatasetOptions(options.name, options.batch_size, **shared))
        self.transform.insert(0, _with_table_names)

    @property
    def max_outcome_val(self) -> int | float:
        """The largest label; labels count from 0."""
        largest: int | float = self.storage.column(("action",)).max().item()
        return largest


def _with_table_names(batch: TensorDict) -> TensorDict:
    batch["X"], batch["y"] = batch["observation"], batch["action"]
    return batch
