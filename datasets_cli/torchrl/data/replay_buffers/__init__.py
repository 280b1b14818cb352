"""``torchrl.data.replay_buffers``; names only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from datasets_cli.torchrl.names import lazy_names

if TYPE_CHECKING:
    from datasets_cli import (
        HERReplayBuffer,
        HindsightStrategy,
        ImmutableDatasetWriter,
        LazyMemmapStorage,
        LazyStackStorage,
        LazyTensorStorage,
        ListStorage,
        PrioritizedReplayBuffer,
        PrioritizedSampler,
        PrioritizedSliceSampler,
        RandomSampler,
        ReplayBuffer,
        ReplayBufferEnsemble,
        RoundRobinWriter,
        Sampler,
        SamplerEnsemble,
        SamplerWithoutReplacement,
        SliceSampler,
        SliceSamplerWithoutReplacement,
        Storage,
        StorageEnsemble,
        TensorDictMaxValueWriter,
        TensorDictPrioritizedReplayBuffer,
        TensorDictReplayBuffer,
        TensorDictRoundRobinWriter,
        TensorStorage,
        Trajectory,
        TrajectoryPredicate,
        Writer,
        WriterEnsemble,
        filter_trajectories,
        find_start_stop_traj,
        iter_trajectories,
        traj,
    )

__all__ = [
    "HERReplayBuffer",
    "HindsightStrategy",
    "ImmutableDatasetWriter",
    "LazyMemmapStorage",
    "LazyStackStorage",
    "LazyTensorStorage",
    "ListStorage",
    "PrioritizedReplayBuffer",
    "PrioritizedSampler",
    "PrioritizedSliceSampler",
    "RandomSampler",
    "ReplayBuffer",
    "ReplayBufferEnsemble",
    "RoundRobinWriter",
    "Sampler",
    "SamplerEnsemble",
    "SamplerWithoutReplacement",
    "SliceSampler",
    "SliceSamplerWithoutReplacement",
    "Storage",
    "StorageEnsemble",
    "TensorDictMaxValueWriter",
    "TensorDictPrioritizedReplayBuffer",
    "TensorDictReplayBuffer",
    "TensorDictRoundRobinWriter",
    "TensorStorage",
    "Trajectory",
    "TrajectoryPredicate",
    "Writer",
    "WriterEnsemble",
    "filter_trajectories",
    "find_start_stop_traj",
    "iter_trajectories",
    "traj",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    __all__,
    modules=("her", "replay_buffers", "samplers", "scheduler", "storages", "utils", "writers"),
)
