"""``torchrl.data.replay_buffers.utils``; names only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from datasets_cli.torchrl.names import lazy_names

if TYPE_CHECKING:
    from datasets_cli import (
        find_start_stop_traj,
    )

__all__ = [
    "find_start_stop_traj",
]

__getattr__, __dir__ = lazy_names(__name__, __all__)
