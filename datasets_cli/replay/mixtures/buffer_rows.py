"""The rows of a buffer that can be written, as a member of a mixture reads them."""

from __future__ import annotations

import torch

from datasets_cli.replay.rows.reader import BatchReader
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.trajectories.boundaries import TrajectoryKeys
from datasets_cli.replay.trajectories.index import TrajectoryIndex
from datasets_cli.schema.columns import Key
from datasets_cli.schema.tree import Tree


class BufferRows(Storage):
    """The rows that a buffer has at the time; none is written while some are gathered."""

    def __init__(self, reader: BatchReader) -> None:
        self._reader = reader
        self.device = reader.storage.device

    def __len__(self) -> int:
        return len(self._reader.storage)

    def __repr__(self) -> str:
        return f"BufferRows({self._reader.storage!r})"

    @property
    def is_tensordict(self) -> bool:  # type: ignore[override]
        """Whether rows are TensorDicts, which may not be known before the first was written."""
        return self._reader.storage.is_tensordict

    @property
    def row_batch_size(self) -> tuple[int, ...]:  # type: ignore[override]
        """Batch size of each row by itself."""
        return self._reader.storage.row_batch_size

    @property
    def revision(self) -> int:  # type: ignore[override]
        """A number that changes whenever rows are written or cleared, or the buffer has others."""
        storage = self._reader.storage
        return hash((id(storage), storage.revision))

    def has(self, key: Key) -> bool:
        """Tell whether rows have an entry."""
        return self._reader.storage.has(key)

    def gather(self, index: torch.Tensor) -> Tree:
        """Return copies ``[B, ...]`` of the rows ``index`` int64 ``[B]``, as a nested dict."""
        with self._reader.lock:
            tree: Tree = self._reader.storage.gather(index)
            return tree

    def scalar_column(self, key: Key) -> torch.Tensor:
        """Return an entry with one number a row, ``[T, W]``."""
        with self._reader.lock:
            return self._reader.storage.scalar_column(key)

    def trajectories(self, keys: TrajectoryKeys) -> TrajectoryIndex:
        """Return the trajectories; see ``WritableStorage.trajectories``."""
        with self._reader.lock:
            return self._reader.storage.trajectories(keys)
