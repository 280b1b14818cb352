"""The dataset manager for offline reinforcement learning.

Names are imported when they are first used: ``import datasets_cli`` loads neither torch nor
tensordict.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from datasets_cli.version import __version__

if TYPE_CHECKING:
    from datasets_cli.experience import (
        D4RLExperienceReplay,
        ExperienceReplay,
        MinariExperienceReplay,
        OpenMLExperienceReplay,
    )
    from datasets_cli.replay.buffers import ReplayBuffer, TensorDictReplayBuffer
    from datasets_cli.replay.frame_stack import CatFrames, FrameStack
    from datasets_cli.replay.prioritized import PrioritizedSampler
    from datasets_cli.replay.prioritized_slices import PrioritizedSliceSampler
    from datasets_cli.replay.samplers import RandomSampler, SamplerWithoutReplacement
    from datasets_cli.replay.slices import SliceSampler, SliceSamplerWithoutReplacement
    from datasets_cli.replay.storage import open_storage
    from datasets_cli.replay.writers import ImmutableDatasetWriter

__all__ = [
    "CatFrames",
    "D4RLExperienceReplay",
    "ExperienceReplay",
    "FrameStack",
    "ImmutableDatasetWriter",
    "MinariExperienceReplay",
    "OpenMLExperienceReplay",
    "PrioritizedSampler",
    "PrioritizedSliceSampler",
    "RandomSampler",
    "ReplayBuffer",
    "SamplerWithoutReplacement",
    "SliceSampler",
    "SliceSamplerWithoutReplacement",
    "TensorDictReplayBuffer",
    "__version__",
    "open_storage",
]

_HOMES = {
    "D4RLExperienceReplay": "experience",
    "ExperienceReplay": "experience",
    "CatFrames": "replay.frame_stack",
    "FrameStack": "replay.frame_stack",
    "MinariExperienceReplay": "experience",
    "OpenMLExperienceReplay": "experience",
    "PrioritizedSampler": "replay.prioritized",
    "PrioritizedSliceSampler": "replay.prioritized_slices",
    "ReplayBuffer": "replay.buffers",
    "TensorDictReplayBuffer": "replay.buffers",
    "RandomSampler": "replay.samplers",
    "SamplerWithoutReplacement": "replay.samplers",
    "SliceSampler": "replay.slices",
    "SliceSamplerWithoutReplacement": "replay.slices",
    "open_storage": "replay.storage",
    "ImmutableDatasetWriter": "replay.writers",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"datasets_cli.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'datasets_cli' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
