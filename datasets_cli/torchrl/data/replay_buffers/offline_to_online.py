"""``torchrl.data.replay_buffers.offline_to_online``; names only."""

from typing import TYPE_CHECKING

from datasets_cli.torchrl.names import lazy_names

__all__ = [
    "OfflineToOnlineReplayBuffer",
    "prefill_replay_buffer",
]

if TYPE_CHECKING:
    from datasets_cli import *
else:
    __getattr__, __dir__ = lazy_names(__name__, __all__)
