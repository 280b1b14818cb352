"""Replay buffers: storages, samplers, writers.

Has every public name of these rooms, also those at the top of ``datasets_cli``.
"""

from __future__ import annotations

from datasets_cli.lazy_names import lazy_names, room_names

_LAZY_IMPORTS = {
    "SamplerEnsemble": "replay.mixing.ensemble",
    "StorageEnsemble": "replay.mixing.ensemble",
    "WriterEnsemble": "replay.mixing.ensemble",
    "Member": "replay.mixing.column_mapping",
    "LinearAnneal": "replay.mixing.weights",
    "WritableStorage": "replay.storages.protocol",
    "LazyStackStorage": "replay.storages.lists",
    "PrioritySampler": "replay.samplers.protocol",
    "RelabelGoal": "replay.goals.relabel",
    "Writer": "replay.writing.writers",
    "ImmutableDatasetWriter": "replay.writing.writers",
    "TensorDictRoundRobinWriter": "replay.writing.writers",
    "TrajectoryPredicate": "replay.queries.conditions",
    "DTypeCastTransform": "replay.transforms.entries",
    "Reward2GoTransform": "replay.transforms.steps",
    "RandomCropTensorDict": "replay.transforms.steps",
    "MultiStepTransform": "replay.transforms.multi_step",
}

_HOMES = {
    **room_names("replay.", "torchrl.slice_samplers", "torchrl.frame_stacks"),
    **_LAZY_IMPORTS,
}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
