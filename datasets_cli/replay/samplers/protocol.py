"""What a sampler is to the rest of the library."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeGuard

import torch

from datasets_cli.replay.arguments import Numbers, StateDict
from datasets_cli.replay.files.json_files import STATE, read_state, write_state
from datasets_cli.replay.old_names import SAMPLER_NAMES, Renamed
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.store.schema.columns import Key

Info = dict[Key, torch.Tensor]
"""What a sampler says of the rows that it drew: columns ``[B, ...]``."""


class Sampler(Renamed, Protocol, renamed=SAMPLER_NAMES):
    """Draws the rows of a batch.

    A sampler of your own derives from this class and writes ``sample``; or it derives from nothing
    and has all members. A buffer makes one call at a time.

    Attributes:
        ran_out: whether the batch just drawn was the last of an epoch; iteration stops there.
        has_priorities: whether this is a ``PrioritySampler``.
        has_slices: whether batches are slices, which cannot be cut to fewer rows.
        truncated_key: where the last row of each slice is marked in ``Info``; None for nowhere.
        init_key: where the first row of each slice is marked in ``Info``; None for nowhere.
    """

    ran_out: bool = False
    has_priorities: ClassVar[bool] = False
    has_slices: ClassVar[bool] = False
    truncated_key: Key | None = None
    init_key: Key | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    @abstractmethod
    def sample(
        self, storage: Storage, batch_size: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return row numbers int64 ``[B]`` and what is said of these rows.

        Args:
            storage: whose rows.
            batch_size: rows to draw.
            generator: what to draw from; the same state gives the same rows.
        """

    def on_write(self, rows: torch.Tensor) -> None:
        """Learn which rows int64 ``[n]`` were written; -1 is one that the writer refused."""
        return

    def on_clear(self) -> None:
        """Learn that the storage does not have rows any more."""
        return

    def state_dict(self) -> StateDict:
        """Return what it takes to continue with the same draws."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state`` was taken."""
        return


class PrioritySampler(Sampler, Protocol):
    """Draws rows by priorities that a training step hands back."""

    has_priorities: ClassVar[bool] = True

    @abstractmethod
    def update_priority(self, index: Numbers, priority: Numbers) -> None:
        """Give the rows ``index`` int64 ``[B]`` new priorities, ``[B]`` or one for all."""

    def dumps(self, path: Path) -> None:
        """Write the state into a folder, which is made; as JSON, if not overridden."""
        write_state(path / STATE, self.state_dict())

    def loads(self, path: Path) -> None:
        """Read what ``dumps`` wrote.

        Raises:
            FileNotFoundError: nothing was written there.
        """
        self.load_state_dict(read_state(path / STATE))


def has_priorities(sampler: Sampler) -> TypeGuard[PrioritySampler]:
    """Tell whether a sampler takes priorities."""
    return sampler.has_priorities
