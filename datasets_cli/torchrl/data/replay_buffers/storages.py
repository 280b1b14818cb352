"""``torchrl.data.replay_buffers.storages``; names only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from datasets_cli.torchrl.names import lazy_names

if TYPE_CHECKING:
    from datasets_cli import (
        LazyMemmapStorage,
        LazyStackStorage,
        LazyTensorStorage,
        ListStorage,
        Storage,
        StorageEnsemble,
        TensorStorage,
    )

__all__ = [
    "LazyMemmapStorage",
    "LazyStackStorage",
    "LazyTensorStorage",
    "ListStorage",
    "Storage",
    "StorageEnsemble",
    "TensorStorage",
]

__getattr__, __dir__ = lazy_names(__name__, __all__)
