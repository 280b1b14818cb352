"""``torchrl.envs``; names only."""

from typing import TYPE_CHECKING

from datasets_cli.torchrl.names import torchrl_names

__all__ = [
    "CatFrames",
    "CatTensors",
    "CenterCrop",
    "Compose",
    "DTypeCastTransform",
    "DoubleToFloat",
    "ExcludeTransform",
    "GymEnv",
    "InitTracker",
    "MultiStepTransform",
    "ObservationNorm",
    "ParallelEnv",
    "RandomCropTensorDict",
    "RenameTransform",
    "Resize",
    "Reward2GoTransform",
    "RewardScaling",
    "RewardSum",
    "SelectTransform",
    "SerialEnv",
    "StepCounter",
    "ToTensorImage",
    "Transform",
    "UnsqueezeTransform",
    "check_env_specs",
]

if TYPE_CHECKING:
    from datasets_cli.torchrl.names import *
else:
    __getattr__, __dir__ = torchrl_names(__name__, __all__, modules=("transforms", "utils"))
