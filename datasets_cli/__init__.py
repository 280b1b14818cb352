"""The dataset manager for offline reinforcement learning.

    list_datasets("hopper-*")                   search the catalogue
    download("d4rl/hopper-medium-v2")           download, verify and convert
    ExperienceReplay("d4rl/hopper-medium-v2")   sample it, as a replay buffer

Names that are needed less often are in modules: ``errors``, ``results`` (classes that functions
return), ``replay``, ``specs``, ``environments``, ``project``, ``config``, ``recipe``, ``formats``
and ``torchrl``. docs/python.md lists every name.

Names are imported when they are first used: ``import datasets_cli`` imports neither torch nor
tensordict.
"""

from __future__ import annotations

import sys
from importlib import import_module

if sys.orig_argv[1:3] == ["-m", __name__] or "".join(sys.orig_argv[1:2]).endswith("/rlds"):
    # On the command line an interrupt during the imports must not print a traceback. `_signal`,
    # because the enums of `signal` take longer to import than this whole file.
    _signal = import_module("_signal")
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

from datasets_cli.lazy_names import lazy_names
from datasets_cli.version import __version__

_LAZY_IMPORTS = {
    # commands, as functions
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
    "program_info": "verbs.program",
    "settings": "verbs.program",
    "list_recipes": "verbs.recipes",
    "recipe_info": "verbs.recipes",
    "new_recipe": "verbs.recipes",
    "check_recipe": "verbs.recipes",
    # writing a dataset step by step
    "DatasetWriter": "exchange.dataset_writer",
    # errors
    "RldsError": "errors",
    "UsageError": "errors",
    # datasets as replay buffers
    "ExperienceReplay": "experience.replay",
    "Trajectories": "replay.trajectories.trajectory_table",
    "D4RLExperienceReplay": "torchrl.families",
    "MinariExperienceReplay": "torchrl.minari",
    "OpenMLExperienceReplay": "torchrl.families",
    "AtariDQNExperienceReplay": "torchrl.families",
    # buffers
    "ReplayBuffer": "replay.buffer.buffer",
    "ReplayBufferEnsemble": "replay.mixing.ensemble",
    "OfflineToOnline": "replay.mixing.offline_to_online",
    "TensorDictReplayBuffer": "replay.buffer.tensordict",
    "Mixture": "replay.mixing.mixture",
    "BatchStream": "replay.loaders",
    "ReplayBufferTrainer": "trainer.replay_buffer",
    "Trainer": "trainer.trainer",
    # storages
    "FrameStack": "replay.storages.dataset",
    "Sequences": "replay.storages.sequences",
    "Storage": "replay.storages.protocol",
    "open_storage": "replay.storages.dataset",
    "ListStorage": "replay.storages.lists",
    "LazyTensorStorage": "replay.storages.tensors",
    "LazyMemmapStorage": "replay.storages.tensors",
    "TensorStorage": "replay.storages.tensors",
    # samplers
    "PrioritizedSampler": "replay.samplers.prioritized",
    "PrioritizedSliceSampler": "torchrl.slice_samplers",
    "RandomSampler": "replay.samplers.rows",
    "Sampler": "replay.samplers.protocol",
    "SamplerWithoutReplacement": "replay.samplers.rows",
    "DistributedSampler": "replay.samplers.rows",
    "BlockShuffleSampler": "replay.samplers.rows",
    "SliceSampler": "torchrl.slice_samplers",
    "SliceSamplerWithoutReplacement": "torchrl.slice_samplers",
    "HERSampler": "replay.goals.sampler",
    # writers
    "RoundRobinWriter": "replay.writing.writers",
    "TensorDictMaxValueWriter": "replay.writing.writers",
    # trajectories
    "split_trajectories": "replay.trajectories.split",
    "traj": "replay.queries.expressions",
    "Trajectory": "replay.queries.trajectory",
    "iter_trajectories": "replay.queries.query",
    "filter_trajectories": "replay.queries.query",
    # goals
    "GoalRule": "replay.goals.relabel",
    "HindsightStrategy": "replay.goals.sampler",
    # specs
    "Bounded": "specs.bounded",
    "Unbounded": "specs.bounded",
    "Categorical": "specs.categorical",
    "OneHot": "specs.one_hot",
    "MultiCategorical": "specs.categorical",
    "MultiOneHot": "specs.one_hot",
    "NonTensor": "specs.leaf",
    "Composite": "specs.composite",
    "check_env_specs": "specs.check",
    "spec_from_gymnasium": "specs.gymnasium_spaces",
    # transforms
    "CatFrames": "torchrl.frame_stacks",
    "Compose": "replay.transforms.transform",
    "CatTensors": "replay.transforms.entries",
    "UnsqueezeTransform": "replay.transforms.entries",
    "DoubleToFloat": "replay.transforms.entries",
    "ObservationNorm": "replay.transforms.scaling",
    "RewardScaling": "replay.transforms.scaling",
    "RewardSum": "replay.transforms.steps",
    "Reward2Go": "replay.transforms.steps",
    "MultiStep": "replay.transforms.multi_step",
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
    "ParallelEnv": "environments.gym_env",
    "RandomPolicy": "environments.policies",
    "Collector": "environments.collectors.collectors",
    "MultiSyncCollector": "environments.collectors.collectors",
}
"""The module that defines each public name.

``python -m tests.support.public_names`` writes the stub ``__init__.pyi``, which type checkers and
editors read, and the tables of docs/python.md.
"""

_MODULES = (
    "config",
    "environments",
    "errors",
    "formats",
    "project",
    "recipe",
    "replay",
    "results",
    "specs",
    "torchrl",
)
"""The public modules."""

__all__ = list(_LAZY_IMPORTS)
__all__ += ["__version__"]

__getattr__, __dir__ = lazy_names(__name__, _LAZY_IMPORTS, _MODULES)
