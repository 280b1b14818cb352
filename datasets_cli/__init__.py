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
    from datasets_cli.families import (
        AtariDQNExperienceReplay,
        D4RLExperienceReplay,
        MinariExperienceReplay,
        OpenMLExperienceReplay,
    )
    from datasets_cli.replay.buffers import ReplayBuffer
    from datasets_cli.replay.ensemble import ReplayBufferEnsemble
    from datasets_cli.replay.frame_stack import FrameStack
    from datasets_cli.replay.list_storage import ListStorage
    from datasets_cli.replay.members import SamplerEnsemble, StorageEnsemble, WriterEnsemble
    from datasets_cli.replay.memmap_storage import LazyMemmapStorage
    from datasets_cli.replay.prioritized import PrioritizedSampler
    from datasets_cli.replay.prioritized_slices import PrioritizedSliceSampler
    from datasets_cli.replay.samplers import RandomSampler, Sampler, SamplerWithoutReplacement
    from datasets_cli.replay.sharded import BatchStream, DistributedSampler
    from datasets_cli.replay.slice_epochs import SliceSamplerWithoutReplacement
    from datasets_cli.replay.slices import SliceSampler
    from datasets_cli.replay.storage import Storage, open_storage
    from datasets_cli.replay.tensor_storage import LazyTensorStorage, TensorStorage
    from datasets_cli.replay.tensordict_buffers import (
        PrioritizedReplayBuffer,
        TensorDictPrioritizedReplayBuffer,
        TensorDictReplayBuffer,
    )
    from datasets_cli.replay.trajectories import find_start_stop_traj, split_trajectories
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

_HOMES = {
    "AtariDQNExperienceReplay": "families",
    "D4RLExperienceReplay": "families",
    "ExperienceReplay": "experience",
    "CatFrames": "replay.transforms.frames",
    "FrameStack": "replay.frame_stack",
    "MinariExperienceReplay": "families",
    "OpenMLExperienceReplay": "families",
    "PrioritizedSampler": "replay.prioritized",
    "PrioritizedSliceSampler": "replay.prioritized_slices",
    "ReplayBuffer": "replay.buffers",
    "ReplayBufferEnsemble": "replay.ensemble",
    "SamplerEnsemble": "replay.members",
    "StorageEnsemble": "replay.members",
    "WriterEnsemble": "replay.members",
    "TensorDictReplayBuffer": "replay.tensordict_buffers",
    "RandomSampler": "replay.samplers",
    "Sampler": "replay.samplers",
    "Storage": "replay.storage",
    "Writer": "replay.writers",
    "SamplerWithoutReplacement": "replay.samplers",
    "BatchStream": "replay.sharded",
    "DistributedSampler": "replay.sharded",
    "SliceSampler": "replay.slices",
    "SliceSamplerWithoutReplacement": "replay.slice_epochs",
    "open_storage": "replay.storage",
    "ImmutableDatasetWriter": "replay.writers",
    "ListStorage": "replay.list_storage",
    "LazyTensorStorage": "replay.tensor_storage",
    "LazyMemmapStorage": "replay.memmap_storage",
    "TensorStorage": "replay.tensor_storage",
    "TensorDictPrioritizedReplayBuffer": "replay.tensordict_buffers",
    "PrioritizedReplayBuffer": "replay.tensordict_buffers",
    "RoundRobinWriter": "replay.writers",
    "TensorDictRoundRobinWriter": "replay.writers",
    "TensorDictMaxValueWriter": "replay.writers",
    "split_trajectories": "replay.trajectories",
    "find_start_stop_traj": "replay.trajectories",
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
    if name in _HOMES:
        return getattr(import_module(f"datasets_cli.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'datasets_cli' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
