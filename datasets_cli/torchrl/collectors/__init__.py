"""``torchrl.collectors``; names only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from datasets_cli.torchrl.names import lazy_names

if TYPE_CHECKING:
    from datasets_cli import (
        Collector,
        MultiAsyncCollector,
        MultiaSyncDataCollector,
        MultiSyncCollector,
        MultiSyncDataCollector,
        RandomPolicy,
        SyncDataCollector,
        split_trajectories,
    )

__all__ = [
    "Collector",
    "MultiAsyncCollector",
    "MultiSyncCollector",
    "MultiSyncDataCollector",
    "MultiaSyncDataCollector",
    "RandomPolicy",
    "SyncDataCollector",
    "split_trajectories",
]

__getattr__, __dir__ = lazy_names(__name__, __all__, modules=("utils",))
