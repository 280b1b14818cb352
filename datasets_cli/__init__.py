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
    "list_datasets": "look.list",
    "dataset_info": "look.info",
    "cite": "look.cite",
    "match_datasets": "look.list",
    "search_datasets": "look.search",
    "dataset_stats": "look.stats",
    "dataset_card": "look.card",
    "normalised_scores": "look.score",
    "download": "manager.download",
    "plan_download": "manager.download",
    "dataset_path": "look.info",
    "verify": "manager.verify",
    "audit_datasets": "manager.audit",
    "find_overlap": "manager.overlap",
    "delete": "manager.delete",
    "convert": "manager.convert",
    "repair": "manager.repair",
    "prune": "manager.prune",
    "disk_usage": "manager.usage",
    "activity": "manager.activity",
    "scan": "manager.scan",
    "compare_datasets": "look.compare",
    "preprocess": "manager.preprocess",
    "preprocess_columns": "manager.preprocess",
    "join_datasets": "manager.preprocess",
    "plan_preprocess": "manager.preprocess",
    "run_plan": "manager.preprocess",
    "open_dataset": "project.open",
    "declared_datasets": "project.open",
    "add_data": "project.open",
    "plot": "look.plots.plot",
    "render": "look.frames.render",
    "record": "manager.record",
    "serve_page": "page.server",
    "export_pages": "page.export",
    "peek": "look.peek",
    "list_trajectories": "look.trajectories.listing",
    "sample_batch": "look.sample",
    "create_dataset": "own.create",
    "import_dataset": "exchange.import_dataset",
    "plan_import": "exchange.import_dataset",
    "export_dataset": "exchange.export_dataset",
    "run_demo": "manager.demo",
    "program_info": "setup.program",
    "settings": "setup.settings",
    "change_setting": "setup.settings",
    "settings_path": "setup.settings",
    "list_recipes": "setup.recipes",
    "recipe_info": "setup.recipes",
    "new_recipe": "setup.recipes",
    "check_recipe": "setup.recipe_check",
    # what they return
    "DatasetRecord": "look.records",
    "DatasetInfo": "look.info",
    "Citation": "look.cite",
    "FoundDataset": "look.search",
    "DatasetStatistics": "look.stats",
    "DatasetCard": "look.card",
    "NormalisedScores": "look.score",
    "Plan": "install.options",
    "Downloads": "install.options",
    "InstalledDataset": "install.options",
    "FailedDataset": "install.options",
    "DatasetFolder": "look.info",
    "VerifiedDataset": "manager.verify",
    "AuditedDataset": "manager.audit",
    "DatasetOverlap": "manager.overlap",
    "InCommon": "manager.overlap",
    "Finding": "audit.rules.finding",
    "DeepReport": "store.deep_check.report",
    "DeletedDataset": "manager.delete",
    "ConvertedDataset": "manager.convert",
    "RepairedDataset": "manager.repair",
    "Leftover": "manager.prune",
    "DiskUsage": "manager.usage",
    "DatasetUsage": "manager.usage",
    "DatasetDifference": "look.difference",
    "ColumnDifference": "look.difference",
    "Activity": "manager.activity",
    "FoundData": "manager.scan",
    "DerivedDataset": "preprocessing.derived",
    "DerivedColumns": "preprocessing.derived",
    "DatasetTables": "project.results",
    "PreprocessPlan": "project.results",
    "PlannedDataset": "project.results",
    "PlannedTables": "project.results",
    "PreprocessResults": "project.results",
    "DeclaredDataset": "project.declaration",
    "AddedData": "project.open",
    "DemoResult": "manager.demo",
    "ExportedDataset": "exchange.export_dataset",
    "ImportPlan": "exchange.import_dataset",
    "PeekedRows": "look.peek",
    "PeekedColumn": "look.peek",
    "SampledBatch": "look.sample",
    "ProgramInfo": "setup.program",
    "Setting": "setup.settings",
    "RecipeInfo": "setup.recipes",
    "CheckedRecipe": "setup.recipe_check",
    "Chart": "look.plots.chart",
    "Series": "look.plots.chart",
    "Rendering": "look.frames.render",
    "ServedPage": "page.server",
    "ExportedPages": "page.export",
    "ListedTrajectories": "look.trajectories.listing",
    # what they take, and what a dataset is described by
    "Config": "config",
    "load_config": "config",
    "Progress": "progress",
    "PreprocessStep": "project.step",
    "Pipeline": "preprocessing.pipeline",
    "StepFile": "project.file",
    "DatasetWriter": "own.writer",
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
    "D4RLExperienceReplay": "torchrl.families.families",
    "MinariExperienceReplay": "torchrl.families.minari",
    "OpenMLExperienceReplay": "torchrl.families.families",
    "AtariDQNExperienceReplay": "torchrl.families.families",
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
    "OfflineToOnlineReplayBuffer": "torchrl.families.offline_to_online",
    "prefill_replay_buffer": "torchrl.families.offline_to_online",
    "load_dataset": "torchrl.families.offline_to_online",
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
    "GoalRule": "replay.goals.rules",
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
