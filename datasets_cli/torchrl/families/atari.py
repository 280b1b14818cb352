"""Runs of the DQN Replay Dataset as replay buffers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from datasets_cli.experience.options import TrajectoryDatasetOptions
from datasets_cli.experience.replay import ExperienceReplay
from datasets_cli.options import takes_fields
from datasets_cli.replay.torchrl_words import DATASET, check_start_method, takes
from datasets_cli.torchrl.families.family import AvailableDatasets, with_slices


@dataclass(frozen=True, kw_only=True)
class AtariOptions(TrajectoryDatasetOptions):
    """What ``AtariDQNExperienceReplay`` takes.

    Args:
        dataset_id: such as ``Pong/5``, ``Pong/5~ckpt0-5``, ``Pong/5~unplugged``; or a view's file.
        checkpoints: ``"A:B"`` takes the checkpoints A to B - 1 alone.
        upstream: ``"dqn_replay"``, ``"rl_unplugged"``, or ``"auto"``: the first that answers.
        num_procs: processes that convert the checkpoints; all cores where None, this process
            where 0.
        strict_len: TorchRL's name of ``strict_length``.
        mp_start_method: ``"spawn"``; ``"fork"`` and ``"forkserver"`` are warned of and not used.
    """

    checkpoints: str | None = None
    upstream: str | None = None
    num_procs: int | None = 0
    strict_len: bool | None = None
    mp_start_method: str = "spawn"


@takes(**DATASET)
class AtariDQNExperienceReplay(ExperienceReplay):
    """A run of the DQN Replay Dataset by game and run, such as ``Pong/5``.

    The frames are single ones, uint8 ``[84, 84]``; ``frame_stack=4`` makes stacks of them when
    batches are drawn. Rewards are clipped to [-1, 1], as the publisher recorded them.

    Raises:
        UsageError: arguments exclude one another, or are out of range.
        RldsError: as ``ExperienceReplay``.
    """

    family = "atari_dqn"
    available_datasets = AvailableDatasets()
    _max_runs: ClassVar[int | None] = None  # TorchRL's page sets it, to take the first checkpoints

    @takes_fields(AtariOptions)
    def __init__(self, options: AtariOptions) -> None:
        check_start_method(options.mp_start_method)
        checkpoints = options.checkpoints
        if checkpoints is None and self._max_runs is not None:
            checkpoints = f"0:{self._max_runs}"
        asked = {"checkpoints": checkpoints, "upstream": options.upstream}
        variant = {name: value for name, value in asked.items() if value is not None}
        if options.strict_len is not None:
            options = replace(options, strict_length=options.strict_len)
        self._open(with_slices(options), variant, options.num_procs)

    @property
    def episodes(self) -> torch.Tensor:  # type: ignore[override]
        """The number of each row's trajectory, int64 ``[N]``, as in TorchRL.

        What ``ExperienceReplay.episodes`` does, ``iterate_episodes`` does here.
        """
        episodes: torch.Tensor = self.storage.column(("episode",))
        return episodes
