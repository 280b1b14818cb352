"""Minari's datasets as replay buffers."""

from __future__ import annotations

from dataclasses import dataclass

from datasets_cli.experience.options import TrajectoryDatasetOptions
from datasets_cli.experience.replay import ExperienceReplay
from datasets_cli.options import takes_fields
from datasets_cli.replay.torchrl_words import DATASET, takes
from datasets_cli.torchrl.families.family import (
    AvailableDatasets,
    hold_trajectories,
    refuse,
    with_slices,
)


@dataclass(frozen=True, kw_only=True)
class MinariOptions(TrajectoryDatasetOptions):
    """What ``MinariExperienceReplay`` takes.

    Args:
        dataset_id: such as ``D4RL/door/human-v2``; or a view's file.
        split_trajs: draw whole trajectories ``[T_max]``, padded, with their ``mask``, in place of
            rows; they are copied into memory.
        load_from_local_minari: False; ``source`` takes a folder of files that are there.
    """

    split_trajs: bool = False
    load_from_local_minari: bool = False

    def __post_init__(self) -> None:
        refuse("load_from_local_minari=True", self.load_from_local_minari)


@takes(**DATASET)
class MinariExperienceReplay(ExperienceReplay):
    """A Minari dataset by its Minari id, such as ``D4RL/door/human-v2``.

    ``split_trajs`` and ``load_from_local_minari`` are TorchRL's; all other arguments are those of
    ``ExperienceReplay``.

    Raises:
        UsageError: another value is asked for of an argument that has one.
        RldsError: as ``ExperienceReplay``.
    """

    family = "minari"
    available_datasets = AvailableDatasets()

    @takes_fields(MinariOptions)
    def __init__(self, options: MinariOptions) -> None:
        self._open(with_slices(options))
        if options.split_trajs:
            hold_trajectories(self)
