"""``torchrl.data.replay_buffers.her``; names only."""

from typing import TYPE_CHECKING

from datasets_cli.torchrl.names import torchrl_names

__all__ = [
    "HERReplayBuffer",
    "HindsightStrategy",
]

if TYPE_CHECKING:
    from datasets_cli.torchrl.names import *
else:
    __getattr__, __dir__ = torchrl_names(__name__, __all__)
