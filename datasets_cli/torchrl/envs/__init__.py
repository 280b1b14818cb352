"""``torchrl.envs``; names only."""

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
        GymEnv,
        InitTracker,
        MultiStepTransform,
        ObservationNorm,
        ParallelEnv,
        RandomCropTensorDict,
        RenameTransform,
        Resize,
        Reward2GoTransform,
        RewardScaling,
        RewardSum,
        SelectTransform,
        SerialEnv,
        StepCounter,
        ToTensorImage,
        Transform,
        UnsqueezeTransform,
        check_env_specs,
    )

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

__getattr__, __dir__ = lazy_names(__name__, __all__, modules=("transforms", "utils"))
