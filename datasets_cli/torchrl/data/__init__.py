"""``torchrl.data``; names only."""

from typing import TYPE_CHECKING

from datasets_cli.torchrl.names import torchrl_names

__all__ = [
    "Binary",
    "BinaryDiscreteTensorSpec",
    "Bounded",
    "BoundedTensorSpec",
    "Categorical",
    "Composite",
    "CompositeSpec",
    "CompressedListStorage",
    "DiscreteTensorSpec",
    "HERReplayBuffer",
    "HindsightStrategy",
    "ImmutableDatasetWriter",
    "LazyMemmapStorage",
    "LazyStackStorage",
    "LazyTensorStorage",
    "ListStorage",
    "MultiCategorical",
    "MultiDiscreteTensorSpec",
    "MultiOneHot",
    "MultiOneHotDiscreteTensorSpec",
    "MultiStep",
    "NonTensor",
    "OfflineToOnlineReplayBuffer",
    "OneHot",
    "OneHotDiscreteTensorSpec",
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
    "TensorSpec",
    "TensorStorage",
    "Trajectory",
    "TrajectoryPredicate",
    "Unbounded",
    "UnboundedContinuous",
    "UnboundedContinuousTensorSpec",
    "UnboundedDiscrete",
    "UnboundedDiscreteTensorSpec",
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
        __name__, __all__, modules=("datasets", "postprocs", "replay_buffers")
    )
