"""TorchRL's dialect: its names, arguments and module paths.

The modules below it that TorchRL has, too, stand where they do there and hold names only: to change
``torchrl`` into ``datasets_cli.torchrl`` is all that an import line needs.
"""

from __future__ import annotations

from datasets_cli.lazy_names import lazy_names, room_names

_LAZY_IMPORTS = {
    "TensorDictPrioritizedReplayBuffer": "torchrl.buffers",
    "PrioritizedReplayBuffer": "torchrl.buffers",
    "HERReplayBuffer": "torchrl.buffers",
    "OfflineToOnlineReplayBuffer": "torchrl.offline_to_online",
    "prefill_replay_buffer": "torchrl.offline_to_online",
    "load_dataset": "torchrl.offline_to_online",
    "CompressedListStorage": "torchrl.buffers",
    "LinearScheduler": "torchrl.schedulers",
    "StepScheduler": "torchrl.schedulers",
    # names of older versions
    "BoundedTensorSpec": "specs.bounded:Bounded",
    "UnboundedContinuousTensorSpec": "specs.bounded:UnboundedContinuous",
    "UnboundedDiscreteTensorSpec": "specs.bounded:UnboundedDiscrete",
    "DiscreteTensorSpec": "specs.categorical:Categorical",
    "OneHotDiscreteTensorSpec": "specs.one_hot:OneHot",
    "MultiDiscreteTensorSpec": "specs.categorical:MultiCategorical",
    "MultiOneHotDiscreteTensorSpec": "specs.one_hot:MultiOneHot",
    "BinaryDiscreteTensorSpec": "specs.categorical:Binary",
    "CompositeSpec": "specs.composite:Composite",
    "SyncDataCollector": "environments.collectors.collectors:Collector",
    "MultiSyncDataCollector": "environments.collectors.collectors:MultiSyncCollector",
    "MultiaSyncDataCollector": "environments.collectors.collectors:MultiAsyncCollector",
    "DistributedDataCollector": "environments.collectors.collectors:DistributedCollector",
    "DistributedSyncDataCollector": "environments.collectors.collectors:DistributedSyncCollector",
    "RPCCollector": "environments.collectors.collectors:DistributedCollector",
    "RPCDataCollector": "environments.collectors.collectors:DistributedCollector",
}

_HOMES = {**room_names("torchrl."), **_LAZY_IMPORTS}
_MODULES = ("collectors", "data", "envs", "trainers")

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES, _MODULES)
