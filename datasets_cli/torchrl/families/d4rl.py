"""D4RL's datasets as replay buffers."""

from __future__ import annotations

from dataclasses import dataclass

from datasets_cli.experience.options import TrajectoryDatasetOptions
from datasets_cli.experience.replay import ExperienceReplay
from datasets_cli.options import takes_fields
from datasets_cli.replay.storages.options import PreviousRewardOptions
from datasets_cli.replay.torchrl_words import DATASET, Word, takes
from datasets_cli.torchrl.families.family import (
    AvailableDatasets,
    open_split,
    refuse,
    with_slices,
)


@dataclass(frozen=True, kw_only=True)
class D4RLOptions(PreviousRewardOptions, TrajectoryDatasetOptions):
    """What ``D4RLExperienceReplay`` takes.

    Args:
        dataset_id: such as ``hopper-medium-v2``; or a view's file.
        split_trajs: draw whole trajectories ``[T_max]``, padded, with their ``mask``, in place of
            rows; they are copied into memory.
        from_env: False.
        use_truncated_as_done: True.
        direct_download: nothing but the published file is ever downloaded.
        terminate_on_end: False, or None.
    """

    split_trajs: bool = False
    from_env: bool = False
    use_truncated_as_done: bool = True
    direct_download: bool | None = None
    terminate_on_end: bool | None = None

    def __post_init__(self) -> None:
        refuse("from_env=True", self.from_env)
        refuse("use_truncated_as_done=False", not self.use_truncated_as_done)
        refuse("terminate_on_end=True", bool(self.terminate_on_end))


@takes(**DATASET, name=Word(None, means="dataset_id"))
class D4RLExperienceReplay(ExperienceReplay):
    """A D4RL dataset by its D4RL id, such as ``hopper-medium-v2``.

    ``split_trajs`` and the four arguments after it are TorchRL's, and take the values that mean
    what is done here: the published file is read, its rows are one after the other, and a step that
    ends by a time limit is done and not terminated. All others are those of ``ExperienceReplay``.
    Rows also have ``reward``, that of the step before, and zero in a trajectory's first row.

    Raises:
        UsageError: another value is asked for of an argument that has one.
        RldsError: as ``ExperienceReplay``.
    """

    family = "d4rl"
    available_datasets = AvailableDatasets()

    @takes_fields(D4RLOptions)
    def __init__(self, options: D4RLOptions) -> None:
        opened = with_slices(options)
        open_split(self, opened) if opened.split_trajs else self._open(opened)
