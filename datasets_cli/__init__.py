"""The dataset manager for offline reinforcement learning.

    list_datasets("hopper-*")                   what there is
    download("d4rl/hopper-medium-v2")           download, verify and convert
    ExperienceReplay("d4rl/hopper-medium-v2")   sample it, as a replay buffer

Every name is on one page, docs/python.md. Names are imported when they are first used:
``import datasets_cli`` loads neither torch nor tensordict.
"""

from __future__ import annotations

import sys
from importlib import import_module

if sys.orig_argv[1:3] == ["-m", __name__] or "".join(sys.orig_argv[1:2]).endswith("/rlds"):
    # The command line: until it has handlers, an interrupt ends it without a traceback. Importing
    # `signal` makes enums, which takes longer than all of this file.
    _signal = import_module("_signal")
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

from datasets_cli.version import __version__

_LAZY_IMPORTS = {
    # verbs, as the command line has them
    "list_datasets": "verbs.list",
    "dataset_info": "verbs.info",
    "cite": "verbs.cite",
    "match_datasets": "verbs.list",
    "dataset_stats": "verbs.stats",
    "dataset_card": "verbs.card",
    "normalised_scores": "verbs.score",
    "download": "verbs.download",
    "plan_download": "verbs.download",
    "dataset_path": "verbs.info",
    "verify": "verbs.verify",
    "audit_datasets": "verbs.audit",
    "find_overlap": "verbs.overlap",
    "delete": "verbs.delete",
    "convert": "verbs.convert",
    "repair": "verbs.repair",
    "prune": "verbs.prune",
    "disk_usage": "verbs.du",
    "scan": "verbs.scan",
    "compare_datasets": "verbs.diff",
    "preprocess": "verbs.preprocess",
    "preprocess_columns": "verbs.preprocess",
    "join_datasets": "verbs.preprocess",
    "plan_preprocess": "verbs.preprocess",
    "run_plan": "verbs.preprocess",
    "open_dataset": "project.open",
    "declared_datasets": "project.open",
    "add_data": "project.open",
    "plot": "verbs.plot",
    "render": "verbs.render",
    "record": "verbs.record",
    "serve_page": "ui.server",
    "export_pages": "ui.export",
    "peek": "verbs.peek",
    "list_trajectories": "verbs.trajectories",
    "sample_batch": "verbs.sample",
    "create_dataset": "exchange.dataset_writer",
    "import_dataset": "verbs.import_dataset",
    "plan_import": "verbs.import_dataset",
    "export_dataset": "verbs.export_dataset",
    "run_demo": "verbs.demo",
    "program_info": "verbs.env",
    "settings": "verbs.config",
    "list_recipes": "verbs.recipes",
    "recipe_info": "verbs.recipes",
    "new_recipe": "verbs.recipes",
    "check_recipe": "verbs.recipes",
    # what they return
    "DatasetRecord": "verbs.list",
    "DatasetInfo": "verbs.info",
    "Citation": "verbs.cite",
    "DatasetStatistics": "verbs.stats",
    "DatasetCard": "verbs.card",
    "NormalisedScores": "verbs.score",
    "Plan": "install.options",
    "Downloads": "install.options",
    "InstalledDataset": "install.options",
    "FailedDataset": "install.options",
    "DatasetFolder": "verbs.info",
    "VerifiedDataset": "verbs.verify",
    "AuditedDataset": "verbs.audit",
    "DatasetOverlap": "verbs.overlap",
    "InCommon": "verbs.overlap",
    "Finding": "audit.rules.finding",
    "DeepReport": "store.deep_check.report",
    "DeletedDataset": "verbs.delete",
    "ConvertedDataset": "verbs.convert",
    "RepairedDataset": "verbs.repair",
    "Leftover": "verbs.prune",
    "DiskUsage": "verbs.du",
    "DatasetUsage": "verbs.du",
    "DatasetDifference": "verbs.difference",
    "ColumnDifference": "verbs.difference",
    "Activity": "verbs.du",
    "FoundData": "verbs.scan",
    "DerivedDataset": "preprocessing.derived",
    "DerivedColumns": "preprocessing.derived",
    "DatasetTables": "project.results",
    "PreprocessPlan": "project.results",
    "PlannedDataset": "project.results",
    "PlannedTables": "project.results",
    "PreprocessResults": "project.results",
    "DeclaredDataset": "project.declaration",
    "AddedData": "project.open",
    "DemoResult": "verbs.demo",
    "ExportedDataset": "verbs.export_dataset",
    "ImportPlan": "verbs.import_dataset",
    "PeekedRows": "verbs.peek",
    "PeekedColumn": "verbs.peek",
    "SampledBatch": "verbs.sample",
    "ProgramInfo": "verbs.env",
    "Setting": "verbs.config",
    "Settings": "verbs.config",
    "RecipeInfo": "verbs.recipes",
    "CheckedRecipe": "verbs.recipes",
    "Chart": "verbs.chart",
    "Series": "verbs.chart",
    "Rendering": "verbs.render",
    "ServedPage": "ui.server",
    "ExportedPages": "ui.export",
    "ListedTrajectories": "verbs.trajectories",
    # what they take, and what a dataset is described by
    "Config": "config",
    "load_config": "config",
    "Progress": "core.progress",
    "PreprocessStep": "project.step",
    "Pipeline": "preprocessing.pipeline",
    "StepFile": "project.file",
    "DatasetWriter": "exchange.dataset_writer",
    "Manifest": "store.manifest",
    "Recipe": "recipe",
    "Option": "recipe",
    # errors
    "RldsError": "errors",
    "UsageError": "errors",
    "EmptyBuffer": "errors",
    "OutOfRange": "errors",
    "UnknownKey": "errors",
    "NoRewards": "errors",
    "WrongRows": "errors",
    "WrongState": "errors",
    "WrongSize": "errors",
    "NotWritable": "errors",
    "Unsupported": "errors",
    "UnknownDataset": "errors",
    "DatasetNotInstalled": "errors",
    "MissingFile": "errors",
    "IntegrityError": "errors",
    "SourceError": "errors",
    "DamagedDataset": "errors",
    "NetworkError": "errors",
    "OfflineError": "errors",
    "AccessError": "errors",
    "DiskFull": "errors",
    "LockedError": "errors",
    "PartialFailure": "errors",
    "ImmutableError": "errors",
    "UnverifiedDataset": "errors",
    "KnownDefect": "errors",
    # datasets as replay buffers
    "ExperienceReplay": "experience.replay",
    "Trajectories": "replay.trajectories.table",
    "D4RLExperienceReplay": "torchrl.families",
    "MinariExperienceReplay": "torchrl.minari",
    "OpenMLExperienceReplay": "torchrl.families",
    "AtariDQNExperienceReplay": "torchrl.families",
    # buffers
    "ReplayBuffer": "replay.buffer.buffer",
    "ReplayBufferEnsemble": "replay.mixing.ensemble",
    "SamplerEnsemble": "replay.mixing.ensemble",
    "StorageEnsemble": "replay.mixing.ensemble",
    "WriterEnsemble": "replay.mixing.ensemble",
    "OfflineToOnline": "replay.mixing.offline_to_online",
    "LinearAnneal": "replay.mixing.weights",
    "TensorDictReplayBuffer": "replay.buffer.tensordict",
    "Mixture": "replay.mixing.mixture",
    "Member": "replay.mixing.columns",
    "BatchStream": "replay.loaders",
    "ReplayBufferTrainer": "trainer.replay_buffer",
    "Trainer": "trainer.trainer",
    "TensorDictPrioritizedReplayBuffer": "torchrl.buffers",
    "PrioritizedReplayBuffer": "torchrl.buffers",
    "HERReplayBuffer": "torchrl.buffers",
    "OfflineToOnlineReplayBuffer": "torchrl.offline_to_online",
    "prefill_replay_buffer": "torchrl.offline_to_online",
    "load_dataset": "torchrl.offline_to_online",
    # storages
    "FrameStack": "replay.storages.dataset",
    "Sequences": "replay.storages.sequences",
    "Storage": "replay.storages.protocol",
    "WritableStorage": "replay.storages.protocol",
    "open_storage": "replay.storages.dataset",
    "ListStorage": "replay.storages.lists",
    "CompressedListStorage": "torchrl.buffers",
    "LazyTensorStorage": "replay.storages.tensors",
    "LazyMemmapStorage": "replay.storages.tensors",
    "LazyStackStorage": "replay.storages.lists",
    "TensorStorage": "replay.storages.tensors",
    # samplers
    "PrioritizedSampler": "replay.samplers.prioritized",
    "PrioritizedSliceSampler": "torchrl.slice_samplers",
    "RandomSampler": "replay.samplers.rows",
    "Sampler": "replay.samplers.protocol",
    "PrioritySampler": "replay.samplers.protocol",
    "SamplerWithoutReplacement": "replay.samplers.rows",
    "DistributedSampler": "replay.samplers.rows",
    "BlockShuffleSampler": "replay.samplers.rows",
    "SliceSampler": "torchrl.slice_samplers",
    "SliceSamplerWithoutReplacement": "torchrl.slice_samplers",
    "HERSampler": "replay.goals.sampler",
    "RelabelGoal": "replay.goals.relabel",
    "LinearScheduler": "torchrl.schedulers",
    "StepScheduler": "torchrl.schedulers",
    # writers
    "Writer": "replay.writing.writers",
    "ImmutableDatasetWriter": "replay.writing.writers",
    "RoundRobinWriter": "replay.writing.writers",
    "TensorDictRoundRobinWriter": "replay.writing.writers",
    "TensorDictMaxValueWriter": "replay.writing.writers",
    # trajectories
    "split_trajectories": "replay.trajectories.split",
    "find_start_stop_traj": "replay.trajectories.bounds",
    "traj": "replay.queries.expressions",
    "Trajectory": "replay.queries.trajectory",
    "TrajectoryPredicate": "replay.queries.conditions",
    "iter_trajectories": "replay.queries.query",
    "filter_trajectories": "replay.queries.query",
    # goals
    "GoalRule": "replay.goals.relabel",
    "HindsightStrategy": "replay.goals.sampler",
    # specs
    "TensorSpec": "specs.spec",
    "Bounded": "specs.bounded",
    "Unbounded": "specs.bounded",
    "UnboundedContinuous": "specs.bounded",
    "UnboundedDiscrete": "specs.bounded",
    "Categorical": "specs.categorical",
    "OneHot": "specs.one_hot",
    "MultiCategorical": "specs.categorical",
    "MultiOneHot": "specs.one_hot",
    "Binary": "specs.categorical",
    "NonTensor": "specs.leaf",
    "Composite": "specs.composite",
    "check_env_specs": "specs.check",
    "spec_from_gymnasium": "specs.gymnasium_spaces",
    "spec_to_gymnasium": "specs.gymnasium_spaces",
    "spec_from_json": "specs.json_form",
    "spec_to_json": "specs.json_form",
    # transforms
    "CatFrames": "torchrl.slice_samplers",
    "Compose": "replay.transforms.transform",
    "CatTensors": "replay.transforms.entries",
    "UnsqueezeTransform": "replay.transforms.entries",
    "DoubleToFloat": "replay.transforms.entries",
    "DTypeCastTransform": "replay.transforms.entries",
    "ObservationNorm": "replay.transforms.scaling",
    "RewardScaling": "replay.transforms.scaling",
    "RewardSum": "replay.transforms.steps",
    "Reward2Go": "replay.transforms.steps",
    "Reward2GoTransform": "replay.transforms.steps",
    "RandomCropTensorDict": "replay.transforms.steps",
    "MultiStep": "replay.transforms.multi_step",
    "MultiStepTransform": "replay.transforms.multi_step",
    "RenameTransform": "replay.transforms.entries",
    "SelectTransform": "replay.transforms.entries",
    "ExcludeTransform": "replay.transforms.entries",
    "ToTensorImage": "replay.transforms.images",
    "ScaledFloatFrame": "replay.transforms.images",
    "CenterCrop": "replay.transforms.images",
    "Resize": "replay.transforms.images",
    "StepCounter": "replay.transforms.steps",
    "InitTracker": "replay.transforms.steps",
    "Transform": "replay.transforms.transform",
    # environments and collectors
    "GymEnv": "environments.gym_env",
    "SerialEnv": "environments.batched_env",
    "ParallelEnv": "environments.batched_env",
    "RandomPolicy": "environments.policies",
    "Collector": "environments.collectors.collectors",
    "MultiSyncCollector": "environments.collectors.collectors",
    "MultiAsyncCollector": "environments.collectors.collectors",
    "DistributedCollector": "environments.collectors.distributed",
    "DistributedSyncCollector": "environments.collectors.distributed",
    "RayCollector": "environments.collectors.distributed",
}
"""Every public name with the module that defines it: the one list of them.

``python -m tests.support.public_names`` writes ``__init__.pyi``, which type checkers and editors
read, and the table of docs/python.md from it.
"""

_ALIASES = {
    "BoundedTensorSpec": "Bounded",
    "UnboundedContinuousTensorSpec": "UnboundedContinuous",
    "UnboundedDiscreteTensorSpec": "UnboundedDiscrete",
    "DiscreteTensorSpec": "Categorical",
    "OneHotDiscreteTensorSpec": "OneHot",
    "MultiDiscreteTensorSpec": "MultiCategorical",
    "MultiOneHotDiscreteTensorSpec": "MultiOneHot",
    "BinaryDiscreteTensorSpec": "Binary",
    "CompositeSpec": "Composite",
    "SyncDataCollector": "Collector",
    "MultiSyncDataCollector": "MultiSyncCollector",
    "MultiaSyncDataCollector": "MultiAsyncCollector",
    "DistributedDataCollector": "DistributedCollector",
    "DistributedSyncDataCollector": "DistributedSyncCollector",
    "RPCCollector": "DistributedCollector",
    "RPCDataCollector": "DistributedCollector",
}
"""Names that older versions of TorchRL give to some of these; importable, and listed once."""

_SUBPACKAGES = ("errors", "formats", "recipe", "replay", "torchrl")
"""What else is public: the modules to import from by their own names."""

__all__ = list(_LAZY_IMPORTS)
__all__ += ["__version__"]


def __getattr__(name: str) -> object:  # what it is, the stub beside this file says
    if name in _ALIASES:
        return getattr(sys.modules[__name__], _ALIASES[name])
    if name in _LAZY_IMPORTS:
        value = getattr(import_module(f"datasets_cli.{_LAZY_IMPORTS[name]}"), name)
        return globals().setdefault(name, value)  # found without this function from now on
    if name in _SUBPACKAGES:
        return import_module(f"datasets_cli.{name}")
    raise AttributeError(f"module 'datasets_cli' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_SUBPACKAGES])
