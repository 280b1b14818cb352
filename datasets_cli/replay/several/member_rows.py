"""The rows of a member as a mixture reads them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

import torch

from datasets_cli.replay.arguments import StateDict
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


class MemberRows(Storage):
    """The rows of a dataset, or those that a buffer has at the time, as columns of a mixture.

    No row of a buffer is written while some are gathered.
    """

    def __init__(
        self,
        source: Storage | BatchReader,
        column_map: ColumnMap | None = None,
        keys: Iterable[Key] = (),
    ) -> None:
        self._source = source
        self._map = column_map
        old_keys = {key: column_map.new_key(key) for key in keys} if column_map else {}
        self._old_keys = {new: key for key, new in old_keys.items() if new}
        self.device = self._rows.device
        # Rows that change are not read ahead.
        self.row_bytes = 0 if isinstance(source, BatchReader) else source.row_bytes
        self._plan: TreePlan | None = None

    @property
    def _rows(self) -> Storage:
        return self._source.storage if isinstance(self._source, BatchReader) else self._source

    @property
    def _lock(self) -> AbstractContextManager[object]:
        return self._source.lock if isinstance(self._source, BatchReader) else nullcontext()

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"MemberRows({self._rows!r})"

    @property
    def is_tensordict(self) -> bool:  # type: ignore[override]
        """Whether rows are TensorDicts, which may not be known before the first was written."""
        return self._rows.is_tensordict

    @property
    def row_batch_size(self) -> tuple[int, ...]:  # type: ignore[override]
        """Batch size of each row."""
        return self._rows.row_batch_size

    @property
    def revision(self) -> int:  # type: ignore[override]
        """A number that changes whenever rows are written or cleared, or the buffer has others."""
        rows = self._rows
        return hash((id(rows), rows.revision))

    def reference(self) -> StateDict | None:
        """Return what names the dataset and the mapping of columns; None of a buffer's rows."""
        dataset = self._rows.reference()
        if dataset is None or self._map is None:
            return None
        return {**dataset, "columns": self._map.to_json()}

    def has(self, key: Key) -> bool:
        """Return whether rows have an entry."""
        if self._map is None:
            return self._rows.has(key)
        return key in self._old_keys or key in self._map.fill

    def gather(self, index: torch.Tensor) -> Tree:
        """Return copies ``[B, ...]`` of the rows ``index`` int64 ``[B]``, as a nested dict."""
        with self._lock:
            tree: Tree = self._rows.gather(index)
        if self._map is None:
            return tree
        return grow_tree(self._map.apply(dict(leaves_in(tree)), len(index), self.device))

    def read(self, index: torch.Tensor) -> GatheredRows | None:
        """Return copies of the rows ``index`` int64 ``[B]`` in numpy's memory, or None."""
        block = self._rows.read(index) if self.row_bytes else None
        if block is None or self._map is None:
            return block
        mapped = self._map.apply(dict(leaves_in(block.tree(0, len(block)))), len(block), None)
        if self._plan is None:
            self._plan = TreePlan(mapped)
        slots = [self._plan.slots[key] for key in mapped]
        return GatheredLeaves(self._plan, slots, [*map(to_array, mapped.values())], len(index))

    def scalar_column(self, key: Key) -> torch.Tensor:
        """Return a column of one number a row, before it is mapped: ``[T, W]``."""
        if self._map is not None and key in self._map.fill:
            return self._map.fill[key].expand(len(self), 1)
        with self._lock:
            return self._rows.scalar_column(self._old_key(key))

    def trajectories(self, keys: TrajectoryKeys) -> TrajectoryIndex:
        """Return the trajectories, as the storage knows them or as columns tell."""
        number, step = (
            None if key is None else self._old_key(key) for key in (keys.number, keys.step)
        )
        ends = tuple(self._old_key(key) for key in keys.ends)
        with self._lock:
            return self._rows.trajectories(TrajectoryKeys(number, ends, step))

    def _old_key(self, key: Key) -> Key:
        return self._old_keys.get(key, key)

    def __getstate__(self) -> StateDict:
        return {**self.__dict__, "_plan": None}
