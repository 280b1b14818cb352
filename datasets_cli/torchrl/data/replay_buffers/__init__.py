"""``torchrl.data.replay_buffers``; names only."""

from typing import TYPE_CHECKING

from datasets_cli.torchrl.names import torchrl_names

__all__ = [
    "CompressedListStorage",
    "HERReplayBuffer",
    "HindsightStrategy",
    "ImmutableDatasetWriter",
    "LazyMemmapStorage",
    "LazyStackStorage",
    "LazyTensorStorage",
    "ListStorage",
    "OfflineToOnlineReplayBuffer",
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
    "iter_trajectories",
    "prefill_replay_buffer",
    "traj",
]

if TYPE_CHECKING:
    from datasets_cli.torchrl.names import *
else:
    __getattr__, __dir__ = torchrl_names(
        __name__,
        __all__,
        modules=(
            "her",
            "offline_to_online",
            "replay_buffers",
            "samplers",
            "scheduler",
            "storages",
            "writers",
        ),
    )
