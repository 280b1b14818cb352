"""The names of datasets_cli.replay, for type checkers and editors."""

from datasets_cli.replay.buffer.buffer import ReplayBuffer as ReplayBuffer
from datasets_cli.replay.buffer.tensordict import TensorDictReplayBuffer as TensorDictReplayBuffer
from datasets_cli.replay.goals.relabel import GoalRule as GoalRule
from datasets_cli.replay.goals.relabel import RelabelGoal as RelabelGoal
from datasets_cli.replay.goals.sampler import HERSampler as HERSampler
from datasets_cli.replay.goals.sampler import HindsightStrategy as HindsightStrategy
from datasets_cli.replay.loaders import BatchStream as BatchStream
from datasets_cli.replay.mixing.column_mapping import Member as Member
from datasets_cli.replay.mixing.ensemble import ReplayBufferEnsemble as ReplayBufferEnsemble
from datasets_cli.replay.mixing.ensemble import SamplerEnsemble as SamplerEnsemble
from datasets_cli.replay.mixing.ensemble import StorageEnsemble as StorageEnsemble
from datasets_cli.replay.mixing.ensemble import WriterEnsemble as WriterEnsemble
from datasets_cli.replay.mixing.mixture import Mixture as Mixture
from datasets_cli.replay.mixing.offline_to_online import OfflineToOnline as OfflineToOnline
from datasets_cli.replay.mixing.weights import LinearAnneal as LinearAnneal
from datasets_cli.replay.queries.conditions import TrajectoryPredicate as TrajectoryPredicate
from datasets_cli.replay.queries.expressions import traj as traj
from datasets_cli.replay.queries.query import filter_trajectories as filter_trajectories
from datasets_cli.replay.queries.query import iter_trajectories as iter_trajectories
from datasets_cli.replay.queries.trajectory import Trajectory as Trajectory
from datasets_cli.replay.samplers.prioritized import PrioritizedSampler as PrioritizedSampler
from datasets_cli.replay.samplers.protocol import PrioritySampler as PrioritySampler
from datasets_cli.replay.samplers.protocol import Sampler as Sampler
from datasets_cli.replay.samplers.rows import BlockShuffleSampler as BlockShuffleSampler
from datasets_cli.replay.samplers.rows import DistributedSampler as DistributedSampler
from datasets_cli.replay.samplers.rows import RandomSampler as RandomSampler
from datasets_cli.replay.samplers.rows import SamplerWithoutReplacement as SamplerWithoutReplacement
from datasets_cli.replay.storages.dataset import FrameStack as FrameStack
from datasets_cli.replay.storages.dataset import open_storage as open_storage
from datasets_cli.replay.storages.lists import LazyStackStorage as LazyStackStorage
from datasets_cli.replay.storages.lists import ListStorage as ListStorage
from datasets_cli.replay.storages.protocol import Storage as Storage
from datasets_cli.replay.storages.protocol import WritableStorage as WritableStorage
from datasets_cli.replay.storages.sequences import Sequences as Sequences
from datasets_cli.replay.storages.tensors import LazyMemmapStorage as LazyMemmapStorage
from datasets_cli.replay.storages.tensors import LazyTensorStorage as LazyTensorStorage
from datasets_cli.replay.storages.tensors import TensorStorage as TensorStorage
from datasets_cli.replay.trajectories.split import split_trajectories as split_trajectories
from datasets_cli.replay.trajectories.trajectory_table import Trajectories as Trajectories
from datasets_cli.replay.transforms.entries import CatTensors as CatTensors
from datasets_cli.replay.transforms.entries import DoubleToFloat as DoubleToFloat
from datasets_cli.replay.transforms.entries import DTypeCastTransform as DTypeCastTransform
from datasets_cli.replay.transforms.entries import ExcludeTransform as ExcludeTransform
from datasets_cli.replay.transforms.entries import RenameTransform as RenameTransform
from datasets_cli.replay.transforms.entries import SelectTransform as SelectTransform
from datasets_cli.replay.transforms.entries import UnsqueezeTransform as UnsqueezeTransform
from datasets_cli.replay.transforms.images import CenterCrop as CenterCrop
from datasets_cli.replay.transforms.images import Resize as Resize
from datasets_cli.replay.transforms.images import ScaledFloatFrame as ScaledFloatFrame
from datasets_cli.replay.transforms.images import ToTensorImage as ToTensorImage
from datasets_cli.replay.transforms.multi_step import MultiStep as MultiStep
from datasets_cli.replay.transforms.multi_step import MultiStepTransform as MultiStepTransform
from datasets_cli.replay.transforms.scaling import ObservationNorm as ObservationNorm
from datasets_cli.replay.transforms.scaling import RewardScaling as RewardScaling
from datasets_cli.replay.transforms.steps import InitTracker as InitTracker
from datasets_cli.replay.transforms.steps import RandomCropTensorDict as RandomCropTensorDict
from datasets_cli.replay.transforms.steps import Reward2Go as Reward2Go
from datasets_cli.replay.transforms.steps import Reward2GoTransform as Reward2GoTransform
from datasets_cli.replay.transforms.steps import RewardSum as RewardSum
from datasets_cli.replay.transforms.steps import StepCounter as StepCounter
from datasets_cli.replay.transforms.transform import Compose as Compose
from datasets_cli.replay.transforms.transform import Transform as Transform
from datasets_cli.replay.writing.writers import ImmutableDatasetWriter as ImmutableDatasetWriter
from datasets_cli.replay.writing.writers import RoundRobinWriter as RoundRobinWriter
from datasets_cli.replay.writing.writers import TensorDictMaxValueWriter as TensorDictMaxValueWriter
from datasets_cli.replay.writing.writers import (
    TensorDictRoundRobinWriter as TensorDictRoundRobinWriter,
)
from datasets_cli.replay.writing.writers import Writer as Writer
from datasets_cli.torchrl.frame_stacks import CatFrames as CatFrames
from datasets_cli.torchrl.slice_samplers import PrioritizedSliceSampler as PrioritizedSliceSampler
from datasets_cli.torchrl.slice_samplers import SliceSampler as SliceSampler
from datasets_cli.torchrl.slice_samplers import (
    SliceSamplerWithoutReplacement as SliceSamplerWithoutReplacement,
)

_LAZY_IMPORTS: dict[str, str]
