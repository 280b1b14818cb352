"""The names of datasets_cli.torchrl, for type checkers and editors."""

from datasets_cli.environments.collectors.collectors import (
    Collector,
    DistributedCollector,
    DistributedSyncCollector,
    MultiAsyncCollector,
    MultiSyncCollector,
)
from datasets_cli.specs.bounded import Bounded, UnboundedContinuous, UnboundedDiscrete
from datasets_cli.specs.categorical import Binary, Categorical, MultiCategorical
from datasets_cli.specs.composite import Composite
from datasets_cli.specs.one_hot import MultiOneHot, OneHot
from datasets_cli.torchrl import collectors as collectors
from datasets_cli.torchrl import data as data
from datasets_cli.torchrl import envs as envs
from datasets_cli.torchrl import trainers as trainers
from datasets_cli.torchrl.buffers import CompressedListStorage as CompressedListStorage
from datasets_cli.torchrl.buffers import HERReplayBuffer as HERReplayBuffer
from datasets_cli.torchrl.buffers import PrioritizedReplayBuffer as PrioritizedReplayBuffer
from datasets_cli.torchrl.buffers import (
    TensorDictPrioritizedReplayBuffer as TensorDictPrioritizedReplayBuffer,
)
from datasets_cli.torchrl.families import AtariDQNExperienceReplay as AtariDQNExperienceReplay
from datasets_cli.torchrl.families import D4RLExperienceReplay as D4RLExperienceReplay
from datasets_cli.torchrl.families import OpenMLExperienceReplay as OpenMLExperienceReplay
from datasets_cli.torchrl.frame_stacks import CatFrames as CatFrames
from datasets_cli.torchrl.minari import MinariExperienceReplay as MinariExperienceReplay
from datasets_cli.torchrl.offline_to_online import (
    OfflineToOnlineReplayBuffer as OfflineToOnlineReplayBuffer,
)
from datasets_cli.torchrl.offline_to_online import load_dataset as load_dataset
from datasets_cli.torchrl.offline_to_online import prefill_replay_buffer as prefill_replay_buffer
from datasets_cli.torchrl.schedulers import LinearScheduler as LinearScheduler
from datasets_cli.torchrl.schedulers import StepScheduler as StepScheduler
from datasets_cli.torchrl.slice_samplers import PrioritizedSliceSampler as PrioritizedSliceSampler
from datasets_cli.torchrl.slice_samplers import SliceSampler as SliceSampler
from datasets_cli.torchrl.slice_samplers import (
    SliceSamplerWithoutReplacement as SliceSamplerWithoutReplacement,
)

BoundedTensorSpec = Bounded
UnboundedContinuousTensorSpec = UnboundedContinuous
UnboundedDiscreteTensorSpec = UnboundedDiscrete
DiscreteTensorSpec = Categorical
OneHotDiscreteTensorSpec = OneHot
MultiDiscreteTensorSpec = MultiCategorical
MultiOneHotDiscreteTensorSpec = MultiOneHot
BinaryDiscreteTensorSpec = Binary
CompositeSpec = Composite
SyncDataCollector = Collector
MultiSyncDataCollector = MultiSyncCollector
MultiaSyncDataCollector = MultiAsyncCollector
DistributedDataCollector = DistributedCollector
DistributedSyncDataCollector = DistributedSyncCollector
RPCCollector = DistributedCollector
RPCDataCollector = DistributedCollector

_LAZY_IMPORTS: dict[str, str]
_MODULES: tuple[str, ...]
