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
    "delete": "manager.delete",
    "convert": "manager.convert",
    "repair": "manager.repair",
    "prune": "manager.prune",
    "disk_usage": "manager.usage",
    "scan": "manager.scan",
    "compare_datasets": "look.compare",
    "preprocess": "manager.preprocess",
    "preprocess_columns": "manager.preprocess",
    "plan_preprocess": "manager.preprocess",
    "run_plan": "manager.preprocess",
    "move": "manager.places",
    "adopt": "manager.places",
    "open_dataset": "project.open",
    "declared_datasets": "project.open",
    "add_data": "project.open",
    "plot": "look.plots.plot",
    "render": "look.frames.render",
    "record": "manager.record",
    "peek": "look.peek",
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
    "FoundData": "manager.scan",
    "PlacedDataset": "manager.places",
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
    "UnknownDataset": "errors",
    "DatasetNotInstalled": "errors",
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
    "D4RLExperienceReplay": "torchrl.families.d4rl",
    "MinariExperienceReplay": "torchrl.families.minari",
    "OpenMLExperienceReplay": "torchrl.families.openml",
    "AtariDQNExperienceReplay": "torchrl.families.atari",
    # buffers
    "ReplayBuffer": "replay.buffers.buffer",
    "ReplayBufferEnsemble": "replay.several.ensemble",
    "SamplerEnsemble": "replay.several.ensemble_parts",
    "StorageEnsemble": "replay.several.ensemble_parts",
    "WriterEnsemble": "replay.several.ensemble_parts",
    "OfflineToOnline": "replay.several.offline_to_online",
    "LinearAnneal": "replay.several.weights",
    "TensorDictReplayBuffer": "replay.buffers.tensordict",
    "Mixture": "replay.several.mixture",
    "Member": "replay.several.member",
    "BatchStream": "replay.loaders",
    "ReplayBufferTrainer": "trainer.replay_buffer",
    "Trainer": "trainer.trainer",
    "TensorDictPrioritizedReplayBuffer": "torchrl.buffers",
    "PrioritizedReplayBuffer": "torchrl.buffers",
    "HERReplayBuffer": "torchrl.her",
    "OfflineToOnlineReplayBuffer": "torchrl.families.offline_to_online",
    "prefill_replay_buffer": "torchrl.families.offline_to_online",
    "load_dataset": "torchrl.families.offline_to_online",
    # storages
    "FrameStack": "replay.storages.frame_stack",
    "Sequences": "replay.storages.sequences",
    "Storage": "replay.storages.protocol",
    "WritableStorage": "replay.storages.protocol",
    "open_storage": "replay.storages.dataset",
    "ListStorage": "replay.storages.lists",
    "CompressedListStorage": "torchrl.compressed",
    "LazyTensorStorage": "replay.storages.tensors",
    "LazyMemmapStorage": "replay.storages.tensors",
    "LazyStackStorage": "replay.storages.lists",
    "TensorStorage": "replay.storages.tensors",
    # samplers
    "PrioritizedSampler": "replay.draws.prioritized",
    "PrioritizedSliceSampler": "torchrl.slice_samplers",
    "RandomSampler": "replay.draws.rows",
    "Sampler": "replay.draws.protocol",
    "PrioritySampler": "replay.draws.protocol",
    "SamplerWithoutReplacement": "replay.draws.rows",
    "DistributedSampler": "replay.draws.distributed",
    "BlockShuffleSampler": "replay.draws.block_shuffle",
    "SliceSampler": "torchrl.slice_samplers",
    "SliceSamplerWithoutReplacement": "torchrl.slice_samplers",
    "HERSampler": "replay.goals.sampler",
    "LinearScheduler": "torchrl.schedulers",
    "StepScheduler": "torchrl.schedulers",
    # writers
    "Writer": "replay.rows.writers",
    "ImmutableDatasetWriter": "replay.rows.writers",
    "RoundRobinWriter": "replay.rows.writers",
    "TensorDictRoundRobinWriter": "replay.rows.writers",
    "TensorDictMaxValueWriter": "replay.rows.max_value",
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
    "dataset_rule": "replay.goals.dataset_rules",
    "HindsightStrategy": "replay.goals.goal_rows",
    # specs
    "TensorSpec": "specs.spec",
    "Bounded": "specs.bounded",
    "BoundedTensorSpec": "specs.bounded",
    "Unbounded": "specs.bounded",
    "UnboundedContinuous": "specs.bounded",
    "UnboundedContinuousTensorSpec": "specs.bounded",
    "UnboundedDiscrete": "specs.bounded",
    "UnboundedDiscreteTensorSpec": "specs.bounded",
    "Categorical": "specs.categorical",
    "DiscreteTensorSpec": "specs.categorical",
    "OneHot": "specs.one_hot",
    "OneHotDiscreteTensorSpec": "specs.one_hot",
    "MultiCategorical": "specs.multi_categorical",
    "MultiDiscreteTensorSpec": "specs.multi_categorical",
    "MultiOneHot": "specs.one_hot",
    "MultiOneHotDiscreteTensorSpec": "specs.one_hot",
    "Binary": "specs.categorical",
    "BinaryDiscreteTensorSpec": "specs.categorical",
    "NonTensor": "specs.non_tensor",
    "Composite": "specs.composite",
    "CompositeSpec": "specs.composite",
    "check_env_specs": "specs.check",
    "spec_from_gymnasium": "specs.gymnasium_spaces",
    "spec_to_gymnasium": "specs.gymnasium_spaces",
    "spec_from_json": "specs.json_form",
    "spec_to_json": "specs.json_form",
    # transforms
    "CatFrames": "torchrl.cat_frames",
    "Compose": "replay.transforms.compose",
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
    "SyncDataCollector": "environments.collectors.collectors",
    "MultiSyncCollector": "environments.collectors.collectors",
    "MultiSyncDataCollector": "environments.collectors.collectors",
    "MultiAsyncCollector": "environments.collectors.collectors",
    "MultiaSyncDataCollector": "environments.collectors.collectors",
    "DistributedCollector": "environments.collectors.distributed",
    "DistributedDataCollector": "environments.collectors.distributed",
    "DistributedSyncCollector": "environments.collectors.distributed",
    "DistributedSyncDataCollector": "environments.collectors.distributed",
    "RPCCollector": "environments.collectors.distributed",
    "RPCDataCollector": "environments.collectors.distributed",
    "RayCollector": "environments.collectors.distributed",
}
"""Every public name with the module that defines it: the one list of them.

``python -m tests.support.public_names`` writes ``__init__.pyi``, which type checkers and editors
read, and the table of docs/python.md from it.
"""

_SUBPACKAGES = ("errors", "formats", "recipe", "replay", "torchrl")
"""What else is public: the modules to import from by their own names."""

__all__ = list(_LAZY_IMPORTS)
__all__ += ["__version__"]


def __getattr__(name: str) -> object:  # what it is, the stub beside this file says
    if name in _LAZY_IMPORTS:
        value = getattr(import_module(f"datasets_cli.{_LAZY_IMPORTS[name]}"), name)
        return globals().setdefault(name, value)  # found without this function from now on
    if name in _SUBPACKAGES:
        return import_module(f"datasets_cli.{name}")
    raise AttributeError(f"module 'datasets_cli' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_SUBPACKAGES])
