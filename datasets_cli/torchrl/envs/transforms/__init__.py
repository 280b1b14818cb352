"""``torchrl.envs.transforms``; names only."""

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
    "InitTracker",
    "MultiStepTransform",
    "ObservationNorm",
    "RandomCropTensorDict",
    "RenameTransform",
    "Resize",
    "Reward2GoTransform",
    "RewardScaling",
    "RewardSum",
    "SelectTransform",
    "StepCounter",
    "ToTensorImage",
    "Transform",
    "UnsqueezeTransform",
]

if TYPE_CHECKING:
    from datasets_cli.torchrl.names import *
else:
    __getattr__, __dir__ = torchrl_names(__name__, __all__, modules=("transforms", "rb_transforms"))
