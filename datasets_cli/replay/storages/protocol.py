"""What a storage is to the rest of the library."""

from __future__ import annotations

from typing import Protocol

from datasets_cli.replay.trajectories.boundaries import TrajectoryKeys
from datasets_cli.replay.trajectories.index import TrajectoryIndex
from datasets_cli.store.schema.columns import Key

NO_ROWS = "Cannot sample from an empty storage. Write rows with extend() first."


class Storage(Protocol):
    """What a sampler needs of a storage."""

    @property
    def revision(self) -> int:
        """A number that changes whenever rows are written or forgotten."""

    def __len__(self) -> int:
        """Number of rows."""

    def has(self, key: Key) -> bool:
        """Tell whether rows have an entry."""

    def trajectories(self, keys: TrajectoryKeys) -> TrajectoryIndex:
        """Return the trajectories, as the storage knows them or as columns say."""
