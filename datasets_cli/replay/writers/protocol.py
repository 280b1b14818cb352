"""What every writer is."""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol

import torch

from datasets_cli.replay.arguments import Rows, StateDict
from datasets_cli.replay.storages.protocol import WritableStorage


class Writer(Protocol):
    """Chooses the rows of a storage that data are written to.

    A writer of your own derives from this class and writes ``write``; or it derives from nothing
    and has all members.

    Attributes:
        write_count: rows written so far, those that were replaced since among them.
    """

    write_count: int = 0

    @abstractmethod
    def write(self, storage: WritableStorage, data: Rows) -> torch.Tensor:
        """Write rows and return their numbers int64 ``[n]``; -1 for a row that was refused."""

    def on_clear(self) -> None:
        """Learn that the storage has no rows any more."""
        return

    def state_dict(self) -> StateDict:
        """Return what it takes to continue."""
        return {}

    def load_state_dict(self, state: StateDict) -> None:
        """Continue where ``state`` was taken."""
        return
