"""``torchrl.data.replay_buffers.replay_buffers``; names only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from datasets_cli.torchrl.names import lazy_names

if TYPE_CHECKING:
    from datasets_cli import (
        PrioritizedReplayBuffer,
        ReplayBuffer,
        ReplayBufferEnsemble,
        TensorDictPrioritizedReplayBuffer,
        TensorDictReplayBuffer,
    )

__all__ = [
    "PrioritizedReplayBuffer",
    "ReplayBuffer",
    "ReplayBufferEnsemble",
    "TensorDictPrioritizedReplayBuffer",
    "TensorDictReplayBuffer",
]

__getattr__, __dir__ = lazy_names(__name__, __all__)
