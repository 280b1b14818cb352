"""The rows of a member as a mixture reads them: those of a buffer, or with other columns."""

from __future__ import annotations

import torch

from datasets_cli.replay.arguments import StateDict
from datasets_cli.replay.keeping.dataset_reference import dataset_of
from datasets_cli.replay.rows.reader import BatchReader
from datasets_cli.replay.several.member import ColumnMap
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.trajectories.boundaries import TrajectoryKeys
from datasets_cli.replay.trajectories.index import TrajectoryIndex
from datasets_cli.schema.bits import to_array
from datasets_cli.schema.columns import Key
from datasets_cli.schema.tree import Tree, TreePlan, grow_tree, leaves_in
from datasets_cli.store.layouts.gathered import GatheredLeaves
from datasets_cli.store.layouts.protocol import GatheredRows


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
        """Return whether rows have an entry."""
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


class MappedStorage(Storage):
    """The rows of a storage with other columns."""

    def __init__(self, storage: Storage, column_map: ColumnMap, keys: tuple[Key, ...]) -> None:
        self._storage = storage
        self._map = column_map
        self._old_keys = {new: key for key in keys if (new := column_map.new_key(key))}
        self.device = storage.device
        self.row_bytes = storage.row_bytes
        self._plan: TreePlan | None = None

    def __len__(self) -> int:
        return len(self._storage)

    def __repr__(self) -> str:
        return f"MappedStorage({self._storage!r})"

    @property
    def revision(self) -> int:  # type: ignore[override]
        """A number that changes whenever rows are written or cleared."""
        return self._storage.revision

    @property
    def reference(self) -> StateDict | None:
        """The dataset, and how its columns are mapped."""
        dataset = dataset_of(self._storage)
        return None if dataset is None else {**dataset, "columns": self._map.to_json()}

    def has(self, key: Key) -> bool:
        """Return whether rows have an entry."""
        return key in self._old_keys or key in self._map.fill

    def gather(self, index: torch.Tensor) -> Tree:
        """Return copies ``[B, ...]`` of the rows ``index`` int64 ``[B]``, as a nested dict."""
        columns = dict(leaves_in(self._storage.gather(index)))
        return grow_tree(self._map.apply(columns, len(index), self.device))

    def read(self, index: torch.Tensor) -> GatheredRows | None:
        """Return copies of the rows ``index`` int64 ``[B]`` in numpy's memory, or None."""
        block = self._storage.read(index)
        if block is None:
            return None
        columns = dict(leaves_in(block.tree(0, len(block))))
        mapped = self._map.apply(columns, len(block), None)
        if self._plan is None:
            self._plan = TreePlan(mapped)
        slots = [self._plan.slots[key] for key in mapped]
        return GatheredLeaves(self._plan, slots, [*map(to_array, mapped.values())], len(index))

    def scalar_column(self, key: Key) -> torch.Tensor:
        """Return a column of one number a row, as it is before it is mapped: ``[T, W]``."""
        if key in self._map.fill:
            return self._map.fill[key].expand(len(self), 1)
        return self._storage.scalar_column(self._old_key(key))

    def trajectories(self, keys: TrajectoryKeys) -> TrajectoryIndex:
        """Return the trajectories, as the storage knows them or as columns tell."""
        number, step = (
            None if key is None else self._old_key(key) for key in (keys.number, keys.step)
        )
        ends = tuple(self._old_key(key) for key in keys.ends)
        return self._storage.trajectories(TrajectoryKeys(number, ends, step))

    def _old_key(self, key: Key) -> Key:
        return self._old_keys.get(key, key)

    def __getstate__(self) -> StateDict:
        return {**self.__dict__, "_plan": None}
