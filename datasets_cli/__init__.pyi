"""Every public name, for type checkers and editors; see __init__.py."""

from datasets_cli import errors as errors
from datasets_cli import formats as formats
from datasets_cli import recipe as recipe
from datasets_cli import replay as replay
from datasets_cli import torchrl as torchrl
from datasets_cli.audit.rules.finding import Finding as Finding
from datasets_cli.config import Config as Config
from datasets_cli.config import load_config as load_config
from datasets_cli.core.progress import Progress as Progress
from datasets_cli.environments.batched_env import ParallelEnv as ParallelEnv
from datasets_cli.environments.batched_env import SerialEnv as SerialEnv
from datasets_cli.environments.collectors.collectors import Collector as Collector
from datasets_cli.environments.collectors.collectors import (
    MultiAsyncCollector as MultiAsyncCollector,
)
from datasets_cli.environments.collectors.collectors import MultiSyncCollector as MultiSyncCollector
from datasets_cli.environments.collectors.distributed import (
    DistributedCollector as DistributedCollector,
)
from datasets_cli.environments.collectors.distributed import (
    DistributedSyncCollector as DistributedSyncCollector,
)
from datasets_cli.environments.collectors.distributed import RayCollector as RayCollector
from datasets_cli.environments.gym_env import GymEnv as GymEnv
from datasets_cli.environments.policies import RandomPolicy as RandomPolicy
from datasets_cli.errors import AccessError as AccessError
from datasets_cli.errors import DamagedDataset as DamagedDataset
from datasets_cli.errors import DatasetNotInstalled as DatasetNotInstalled
from datasets_cli.errors import DiskFull as DiskFull
from datasets_cli.errors import EmptyBuffer as EmptyBuffer
from datasets_cli.errors import ImmutableError as ImmutableError
from datasets_cli.errors import IntegrityError as IntegrityError
from datasets_cli.errors import KnownDefect as KnownDefect
from datasets_cli.errors import LockedError as LockedError
from datasets_cli.errors import MissingFile as MissingFile
from datasets_cli.errors import NetworkError as NetworkError
from datasets_cli.errors import NoRewards as NoRewards
from datasets_cli.errors import NotWritable as NotWritable
from datasets_cli.errors import OfflineError as OfflineError
from datasets_cli.errors import OutOfRange as OutOfRange
from datasets_cli.errors import PartialFailure as PartialFailure
from datasets_cli.errors import RldsError as RldsError
from datasets_cli.errors import SourceError as SourceError
from datasets_cli.errors import UnknownDataset as UnknownDataset
from datasets_cli.errors import UnknownKey as UnknownKey
from datasets_cli.errors import Unsupported as Unsupported
from datasets_cli.errors import UnverifiedDataset as UnverifiedDataset
from datasets_cli.errors import UsageError as UsageError
from datasets_cli.errors import WrongRows as WrongRows
from datasets_cli.errors import WrongSize as WrongSize
from datasets_cli.errors import WrongState as WrongState
from datasets_cli.exchange.dataset_writer import DatasetWriter as DatasetWriter
from datasets_cli.exchange.dataset_writer import create_dataset as create_dataset
from datasets_cli.experience.replay import ExperienceReplay as ExperienceReplay
from datasets_cli.install.options import Downloads as Downloads
from datasets_cli.install.options import FailedDataset as FailedDataset
from datasets_cli.install.options import InstalledDataset as InstalledDataset
from datasets_cli.install.options import Plan as Plan
from datasets_cli.preprocessing.derived import DerivedColumns as DerivedColumns
from datasets_cli.preprocessing.derived import DerivedDataset as DerivedDataset
from datasets_cli.preprocessing.pipeline import Pipeline as Pipeline
from datasets_cli.project.declaration import DeclaredDataset as DeclaredDataset
from datasets_cli.project.file import StepFile as StepFile
from datasets_cli.project.open import AddedData as AddedData
from datasets_cli.project.open import add_data as add_data
from datasets_cli.project.open import declared_datasets as declared_datasets
from datasets_cli.project.open import open_dataset as open_dataset
from datasets_cli.project.results import DatasetTables as DatasetTables
from datasets_cli.project.results import PlannedDataset as PlannedDataset
from datasets_cli.project.results import PlannedTables as PlannedTables
from datasets_cli.project.results import PreprocessPlan as PreprocessPlan
from datasets_cli.project.results import PreprocessResults as PreprocessResults
from datasets_cli.project.step import PreprocessStep as PreprocessStep
from datasets_cli.recipe import Option as Option
from datasets_cli.recipe import Recipe as Recipe
from datasets_cli.replay.buffer.buffer import ReplayBuffer as ReplayBuffer
from datasets_cli.replay.buffer.tensordict import TensorDictReplayBuffer as TensorDictReplayBuffer
from datasets_cli.replay.goals.relabel import GoalRule as GoalRule
from datasets_cli.replay.goals.relabel import RelabelGoal as RelabelGoal
from datasets_cli.replay.goals.sampler import HERSampler as HERSampler
from datasets_cli.replay.goals.sampler import HindsightStrategy as HindsightStrategy
from datasets_cli.replay.loaders import BatchStream as BatchStream
from datasets_cli.replay.mixing.columns import Member as Member
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
from datasets_cli.replay.trajectories.bounds import find_start_stop_traj as find_start_stop_traj
from datasets_cli.replay.trajectories.split import split_trajectories as split_trajectories
from datasets_cli.replay.trajectories.table import Trajectories as Trajectories
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
from datasets_cli.specs.bounded import Bounded as Bounded
from datasets_cli.specs.bounded import Unbounded as Unbounded
from datasets_cli.specs.bounded import UnboundedContinuous as UnboundedContinuous
from datasets_cli.specs.bounded import UnboundedDiscrete as UnboundedDiscrete
from datasets_cli.specs.categorical import Binary as Binary
from datasets_cli.specs.categorical import Categorical as Categorical
from datasets_cli.specs.categorical import MultiCategorical as MultiCategorical
from datasets_cli.specs.check import check_env_specs as check_env_specs
from datasets_cli.specs.composite import Composite as Composite
from datasets_cli.specs.gymnasium_spaces import spec_from_gymnasium as spec_from_gymnasium
from datasets_cli.specs.gymnasium_spaces import spec_to_gymnasium as spec_to_gymnasium
from datasets_cli.specs.json_form import spec_from_json as spec_from_json
from datasets_cli.specs.json_form import spec_to_json as spec_to_json
from datasets_cli.specs.leaf import NonTensor as NonTensor
from datasets_cli.specs.one_hot import MultiOneHot as MultiOneHot
from datasets_cli.specs.one_hot import OneHot as OneHot
from datasets_cli.specs.spec import TensorSpec as TensorSpec
from datasets_cli.store.deep_check.report import DeepReport as DeepReport
from datasets_cli.store.manifest import Manifest as Manifest
from datasets_cli.torchrl.buffers import CompressedListStorage as CompressedListStorage
from datasets_cli.torchrl.buffers import HERReplayBuffer as HERReplayBuffer
from datasets_cli.torchrl.buffers import PrioritizedReplayBuffer as PrioritizedReplayBuffer
from datasets_cli.torchrl.buffers import (
    TensorDictPrioritizedReplayBuffer as TensorDictPrioritizedReplayBuffer,
)
from datasets_cli.torchrl.families import AtariDQNExperienceReplay as AtariDQNExperienceReplay
from datasets_cli.torchrl.families import D4RLExperienceReplay as D4RLExperienceReplay
from datasets_cli.torchrl.families import OpenMLExperienceReplay as OpenMLExperienceReplay
from datasets_cli.torchrl.minari import MinariExperienceReplay as MinariExperienceReplay
from datasets_cli.torchrl.offline_to_online import (
    OfflineToOnlineReplayBuffer as OfflineToOnlineReplayBuffer,
)
from datasets_cli.torchrl.offline_to_online import load_dataset as load_dataset
from datasets_cli.torchrl.offline_to_online import prefill_replay_buffer as prefill_replay_buffer
from datasets_cli.torchrl.schedulers import LinearScheduler as LinearScheduler
from datasets_cli.torchrl.schedulers import StepScheduler as StepScheduler
from datasets_cli.torchrl.slice_samplers import CatFrames as CatFrames
from datasets_cli.torchrl.slice_samplers import PrioritizedSliceSampler as PrioritizedSliceSampler
from datasets_cli.torchrl.slice_samplers import SliceSampler as SliceSampler
from datasets_cli.torchrl.slice_samplers import (
    SliceSamplerWithoutReplacement as SliceSamplerWithoutReplacement,
)
from datasets_cli.trainer.replay_buffer import ReplayBufferTrainer as ReplayBufferTrainer
from datasets_cli.trainer.trainer import Trainer as Trainer
from datasets_cli.ui.export import ExportedPages as ExportedPages
from datasets_cli.ui.export import export_pages as export_pages
from datasets_cli.ui.server import ServedPage as ServedPage
from datasets_cli.ui.server import serve_page as serve_page
from datasets_cli.verbs.audit import AuditedDataset as AuditedDataset
from datasets_cli.verbs.audit import audit_datasets as audit_datasets
from datasets_cli.verbs.card import DatasetCard as DatasetCard
from datasets_cli.verbs.card import dataset_card as dataset_card
from datasets_cli.verbs.chart import Chart as Chart
from datasets_cli.verbs.chart import Series as Series
from datasets_cli.verbs.cite import Citation as Citation
from datasets_cli.verbs.cite import cite as cite
from datasets_cli.verbs.config import Setting as Setting
from datasets_cli.verbs.config import Settings as Settings
from datasets_cli.verbs.config import settings as settings
from datasets_cli.verbs.convert import ConvertedDataset as ConvertedDataset
from datasets_cli.verbs.convert import convert as convert
from datasets_cli.verbs.delete import DeletedDataset as DeletedDataset
from datasets_cli.verbs.delete import delete as delete
from datasets_cli.verbs.demo import DemoResult as DemoResult
from datasets_cli.verbs.demo import run_demo as run_demo
from datasets_cli.verbs.diff import compare_datasets as compare_datasets
from datasets_cli.verbs.difference import ColumnDifference as ColumnDifference
from datasets_cli.verbs.difference import DatasetDifference as DatasetDifference
from datasets_cli.verbs.download import download as download
from datasets_cli.verbs.download import plan_download as plan_download
from datasets_cli.verbs.du import Activity as Activity
from datasets_cli.verbs.du import DatasetUsage as DatasetUsage
from datasets_cli.verbs.du import DiskUsage as DiskUsage
from datasets_cli.verbs.du import disk_usage as disk_usage
from datasets_cli.verbs.env import ProgramInfo as ProgramInfo
from datasets_cli.verbs.env import program_info as program_info
from datasets_cli.verbs.export_dataset import ExportedDataset as ExportedDataset
from datasets_cli.verbs.export_dataset import export_dataset as export_dataset
from datasets_cli.verbs.import_dataset import ImportPlan as ImportPlan
from datasets_cli.verbs.import_dataset import import_dataset as import_dataset
from datasets_cli.verbs.import_dataset import plan_import as plan_import
from datasets_cli.verbs.info import DatasetFolder as DatasetFolder
from datasets_cli.verbs.info import DatasetInfo as DatasetInfo
from datasets_cli.verbs.info import dataset_info as dataset_info
from datasets_cli.verbs.info import dataset_path as dataset_path
from datasets_cli.verbs.list import DatasetRecord as DatasetRecord
from datasets_cli.verbs.list import list_datasets as list_datasets
from datasets_cli.verbs.list import match_datasets as match_datasets
from datasets_cli.verbs.overlap import DatasetOverlap as DatasetOverlap
from datasets_cli.verbs.overlap import InCommon as InCommon
from datasets_cli.verbs.overlap import find_overlap as find_overlap
from datasets_cli.verbs.peek import PeekedColumn as PeekedColumn
from datasets_cli.verbs.peek import PeekedRows as PeekedRows
from datasets_cli.verbs.peek import peek as peek
from datasets_cli.verbs.plot import plot as plot
from datasets_cli.verbs.preprocess import join_datasets as join_datasets
from datasets_cli.verbs.preprocess import plan_preprocess as plan_preprocess
from datasets_cli.verbs.preprocess import preprocess as preprocess
from datasets_cli.verbs.preprocess import preprocess_columns as preprocess_columns
from datasets_cli.verbs.preprocess import run_plan as run_plan
from datasets_cli.verbs.prune import Leftover as Leftover
from datasets_cli.verbs.prune import prune as prune
from datasets_cli.verbs.recipes import CheckedRecipe as CheckedRecipe
from datasets_cli.verbs.recipes import RecipeInfo as RecipeInfo
from datasets_cli.verbs.recipes import check_recipe as check_recipe
from datasets_cli.verbs.recipes import list_recipes as list_recipes
from datasets_cli.verbs.recipes import new_recipe as new_recipe
from datasets_cli.verbs.recipes import recipe_info as recipe_info
from datasets_cli.verbs.record import record as record
from datasets_cli.verbs.render import Rendering as Rendering
from datasets_cli.verbs.render import render as render
from datasets_cli.verbs.repair import RepairedDataset as RepairedDataset
from datasets_cli.verbs.repair import repair as repair
from datasets_cli.verbs.sample import SampledBatch as SampledBatch
from datasets_cli.verbs.sample import sample_batch as sample_batch
from datasets_cli.verbs.scan import FoundData as FoundData
from datasets_cli.verbs.scan import scan as scan
from datasets_cli.verbs.score import NormalisedScores as NormalisedScores
from datasets_cli.verbs.score import normalised_scores as normalised_scores
from datasets_cli.verbs.stats import DatasetStatistics as DatasetStatistics
from datasets_cli.verbs.stats import dataset_stats as dataset_stats
from datasets_cli.verbs.trajectories import ListedTrajectories as ListedTrajectories
from datasets_cli.verbs.trajectories import list_trajectories as list_trajectories
from datasets_cli.verbs.verify import VerifiedDataset as VerifiedDataset
from datasets_cli.verbs.verify import verify as verify
from datasets_cli.version import __version__ as __version__

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
_ALIASES: dict[str, str]
_SUBPACKAGES: tuple[str, ...]
