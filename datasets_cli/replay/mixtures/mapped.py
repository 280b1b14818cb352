"""A storage whose columns are mapped to those of a mixture."""

from __future__ import annotations

from typing import Any

import torch

from datasets_cli.replay.arguments import StateDict
from datasets_cli.replay.keeping.dataset_reference import dataset_of
from datasets_cli.replay.mixtures.column_map import ColumnMap
from datasets_cli.replay.mixtures.forms import flat
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.trajectories.boundaries import TrajectoryKeys
from datasets_cli.replay.trajectories.index import TrajectoryIndex
from datasets_cli.schema.bits import to_array
from datasets_cli.schema.columns import Key
from datasets_cli.schema.gathered_leaves import GatheredLeaves
from datasets_cli.schema.tree import Tree, TreePlan, grow_tree
from datasets_cli.store.rows.protocol import GatheredRows


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
        found = dataset_of(self._storage)
        return None if found is None else {**found, "columns": self._map.to_json()}

    def has(self, key: Key) -> bool:
        """Tell whether rows have an entry."""
        return key in self._old_keys or key in self._map.fill

    def gather(self, index: torch.Tensor) -> Tree:
        """Return copies ``[B, ...]`` of the rows ``index`` int64 ``[B]``, as a nested dict."""
        tree = self._storage.gather(index)
        return grow_tree(self._map.apply(dict(flat(tree)), len(index), self.device))

    def read(self, index: torch.Tensor) -> GatheredRows | None:
        """Return copies of the rows ``index`` int64 ``[B]`` in numpy's memory, or None."""
        block = self._storage.read(index)
        if block is None:
            return None
        leaves = self._map.apply(dict(flat(block.tree(0, len(block)))), len(block), None)
        if self._plan is None:
            self._plan = TreePlan(leaves)
        slots = [self._plan.slots[key] for key in leaves]
        return GatheredLeaves(self._plan, slots, [*map(to_array, leaves.values())], len(index))

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

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plan": None}
