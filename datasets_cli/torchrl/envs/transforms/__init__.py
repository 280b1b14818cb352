"""``torchrl.envs.transforms``; names only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from datasets_cli.torchrl.names import lazy_names

if TYPE_CHECKING:
    from datasets_cli import (
        CatFrames,
        CatTensors,
        CenterCrop,
        Compose,
        DoubleToFloat,
        DTypeCastTransform,
        ExcludeTransform,
        InitTracker,
        MultiStepTransform,
        ObservationNorm,
        RandomCropTensorDict,
        RenameTransform,
        Resize,
        Reward2GoTransform,
        RewardScaling,
        RewardSum,
        SelectTransform,
        StepCounter,
        ToTensorImage,
        Transform,
        UnsqueezeTransform,
    )

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

__getattr__, __dir__ = lazy_names(__name__, __all__, modules=("transforms", "rb_transforms"))
