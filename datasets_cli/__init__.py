"""The dataset manager for offline reinforcement learning.

Names are imported when they are first used: ``import datasets_cli`` loads neither torch nor
tensordict.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from datasets_cli.version import __version__

if TYPE_CHECKING:
    from datasets_cli.experience import ExperienceReplay
    from datasets_cli.replay.buffers.buffer import ReplayBuffer
    from datasets_cli.replay.buffers.tensordict import TensorDictReplayBuffer
    from datasets_cli.replay.ensembles.ensemble import ReplayBufferEnsemble
    from datasets_cli.replay.ensembles.members import (
        SamplerEnsemble,
        StorageEnsemble,
        WriterEnsemble,
    )
    from datasets_cli.replay.loaders import BatchStream
    from datasets_cli.replay.samplers.distributed import DistributedSampler
    from datasets_cli.replay.samplers.prioritized import PrioritizedSampler
    from datasets_cli.replay.samplers.protocol import Sampler
    from datasets_cli.replay.samplers.random import RandomSampler, SamplerWithoutReplacement
    from datasets_cli.replay.storages.dataset import open_storage
    from datasets_cli.replay.storages.frame_stack import FrameStack
    from datasets_cli.replay.storages.lists import ListStorage
    from datasets_cli.replay.storages.memmap import LazyMemmapStorage
    from datasets_cli.replay.storages.protocol import Storage
    from datasets_cli.replay.storages.tensors import LazyTensorStorage, TensorStorage
    from datasets_cli.replay.trajectories.split import split_trajectories
    from datasets_cli.replay.trajectories.start_stop import find_start_stop_traj
    from datasets_cli.replay.transforms.compose import Compose
    from datasets_cli.replay.transforms.crop import RandomCropTensorDict
    from datasets_cli.replay.transforms.frames import CatFrames
    from datasets_cli.replay.transforms.images import ToTensorImage
    from datasets_cli.replay.transforms.keys import (
        ExcludeTransform,
        RenameTransform,
        SelectTransform,
    )
    from datasets_cli.replay.transforms.multi_step import MultiStep, MultiStepTransform
    from datasets_cli.replay.transforms.rewards import Reward2Go, Reward2GoTransform, RewardSum
    from datasets_cli.replay.transforms.scaling import ObservationNorm, RewardScaling
    from datasets_cli.replay.transforms.tensors import CatTensors, DoubleToFloat, UnsqueezeTransform
    from datasets_cli.replay.transforms.tracking import InitTracker, StepCounter
    from datasets_cli.replay.transforms.transform import Transform
    from datasets_cli.replay.writers import (
        ImmutableDatasetWriter,
        RoundRobinWriter,
        TensorDictMaxValueWriter,
        TensorDictRoundRobinWriter,
        Writer,
    )
    from datasets_cli.torchrl.buffers import (
        PrioritizedReplayBuffer,
        TensorDictPrioritizedReplayBuffer,
    )
    from datasets_cli.torchrl.families import (
        AtariDQNExperienceReplay,
        D4RLExperienceReplay,
        MinariExperienceReplay,
        OpenMLExperienceReplay,
    )
    from datasets_cli.torchrl.slice_samplers import (
        PrioritizedSliceSampler,
        SliceSampler,
        SliceSamplerWithoutReplacement,
    )

__all__ = [
    "AtariDQNExperienceReplay",
    "BatchStream",
    "CatFrames",
    "CatTensors",
    "Compose",
    "D4RLExperienceReplay",
    "DistributedSampler",
    "DoubleToFloat",
    "ExcludeTransform",
    "ExperienceReplay",
    "FrameStack",
    "ImmutableDatasetWriter",
    "InitTracker",
    "LazyMemmapStorage",
    "LazyTensorStorage",
    "ListStorage",
    "MinariExperienceReplay",
    "MultiStep",
    "MultiStepTransform",
    "ObservationNorm",
    "OpenMLExperienceReplay",
    "PrioritizedReplayBuffer",
    "PrioritizedSampler",
    "PrioritizedSliceSampler",
    "RandomCropTensorDict",
    "RandomSampler",
    "RenameTransform",
    "ReplayBuffer",
    "ReplayBufferEnsemble",
    "Reward2Go",
    "Reward2GoTransform",
    "RewardScaling",
    "RewardSum",
    "RoundRobinWriter",
    "Sampler",
    "SamplerEnsemble",
    "SamplerWithoutReplacement",
    "SelectTransform",
    "SliceSampler",
    "SliceSamplerWithoutReplacement",
    "StepCounter",
    "Storage",
    "StorageEnsemble",
    "TensorDictMaxValueWriter",
    "TensorDictPrioritizedReplayBuffer",
    "TensorDictReplayBuffer",
    "TensorDictRoundRobinWriter",
    "TensorStorage",
    "ToTensorImage",
    "Transform",
    "UnsqueezeTransform",
    "Writer",
    "WriterEnsemble",
    "__version__",
    "find_start_stop_traj",
    "open_storage",
    "split_trajectories",
]

_LAZY_IMPORTS = {
    "AtariDQNExperienceReplay": "torchrl.families",
    "D4RLExperienceReplay": "torchrl.families",
    "ExperienceReplay": "experience",
    "CatFrames": "replay.transforms.frames",
    "FrameStack": "replay.storages.frame_stack",
    "MinariExperienceReplay": "torchrl.families",
    "OpenMLExperienceReplay": "torchrl.families",
    "PrioritizedSampler": "replay.samplers.prioritized",
    "PrioritizedSliceSampler": "torchrl.slice_samplers",
    "ReplayBuffer": "replay.buffers.buffer",
    "ReplayBufferEnsemble": "replay.ensembles.ensemble",
    "SamplerEnsemble": "replay.ensembles.members",
    "StorageEnsemble": "replay.ensembles.members",
    "WriterEnsemble": "replay.ensembles.members",
    "TensorDictReplayBuffer": "replay.buffers.tensordict",
    "RandomSampler": "replay.samplers.random",
    "Sampler": "replay.samplers.protocol",
    "Storage": "replay.storages.protocol",
    "Writer": "replay.writers",
    "SamplerWithoutReplacement": "replay.samplers.random",
    "BatchStream": "replay.loaders",
    "DistributedSampler": "replay.samplers.distributed",
    "SliceSampler": "torchrl.slice_samplers",
    "SliceSamplerWithoutReplacement": "torchrl.slice_samplers",
    "open_storage": "replay.storages.dataset",
    "ImmutableDatasetWriter": "replay.writers",
    "ListStorage": "replay.storages.lists",
    "LazyTensorStorage": "replay.storages.tensors",
    "LazyMemmapStorage": "replay.storages.memmap",
    "TensorStorage": "replay.storages.tensors",
    "TensorDictPrioritizedReplayBuffer": "torchrl.buffers",
    "PrioritizedReplayBuffer": "torchrl.buffers",
    "RoundRobinWriter": "replay.writers",
    "TensorDictRoundRobinWriter": "replay.writers",
    "TensorDictMaxValueWriter": "replay.writers",
    "split_trajectories": "replay.trajectories.split",
    "find_start_stop_traj": "replay.trajectories.start_stop",
    "Compose": "replay.transforms.compose",
    "CatTensors": "replay.transforms.tensors",
    "UnsqueezeTransform": "replay.transforms.tensors",
    "DoubleToFloat": "replay.transforms.tensors",
    "ObservationNorm": "replay.transforms.scaling",
    "RewardScaling": "replay.transforms.scaling",
    "RewardSum": "replay.transforms.rewards",
    "Reward2Go": "replay.transforms.rewards",
    "Reward2GoTransform": "replay.transforms.rewards",
    "RandomCropTensorDict": "replay.transforms.crop",
    "MultiStep": "replay.transforms.multi_step",
    "MultiStepTransform": "replay.transforms.multi_step",
    "RenameTransform": "replay.transforms.keys",
    "SelectTransform": "replay.transforms.keys",
    "ExcludeTransform": "replay.transforms.keys",
    "ToTensorImage": "replay.transforms.images",
    "StepCounter": "replay.transforms.tracking",
    "InitTracker": "replay.transforms.tracking",
    "Transform": "replay.transforms.transform",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY_IMPORTS:
        return getattr(import_module(f"datasets_cli.{_LAZY_IMPORTS[name]}"), name)
    raise AttributeError(f"module 'datasets_cli' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
