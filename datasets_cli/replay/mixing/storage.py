"""The storage of a mixture: several storages, one after the other."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import accumulate

import numpy as np
import torch
from tensordict import NonTensorStack, TensorDict

from datasets_cli.errors import UsageError
from datasets_cli.quantities import few_lines
from datasets_cli.replay.arguments import Rows, StateDict
from datasets_cli.replay.samplers.epochs import bounds_reached
from datasets_cli.replay.storages.collate import stack_texts
from datasets_cli.replay.storages.dataset import DatasetStorage
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.trajectories.bounds import TrajectoryIndex, TrajectoryKeys
from datasets_cli.schema.bits import checked_numbers, join_tensors, take
from datasets_cli.schema.columns import MEMBER, Key
from datasets_cli.schema.tree import Tree, leaves_in, put
from datasets_cli.store.layouts.joined_rows import JoinedRows
from datasets_cli.store.layouts.protocol import GatheredRows
from datasets_cli.store.layouts.record_table import RecordTable, have_one_form
from datasets_cli.system_errors import check_memory

MEMBER_BYTES = 8


MemberRowNumbers = Sequence[tuple[int, np.ndarray]]
"""Members, and the numbers int64 ``[n]`` of their rows."""

Join = Callable[[MemberRowNumbers, np.ndarray, np.ndarray], GatheredRows]
"""Puts rows of members together; see ``_parts`` for what it takes."""


class MixtureStorage(Storage):
    """The rows of several storages, numbered one after the other.

        member      0 0 0 0 0 1 1 1 2 2 2 2
        row         0 1 2 3 4 5 6 7 8 9 10 11      bounds 0 5 8 12

    Each row also has the number of its member, in ``"member"``. Trajectories are the members': none
    goes from one to another. ``"episode"`` stays the number of a trajectory in its member.
    """

    def __init__(
        self, storages: Sequence[Storage], names: Sequence[str], written: Sequence[str] = ()
    ) -> None:
        self.storages = tuple(storages)
        self.names = tuple(names)
        self.written = tuple(written)
        self.device = self.storages[0].device
        sizes = [storage.row_bytes for storage in self.storages]
        self.row_bytes = max(sizes) + MEMBER_BYTES if all(sizes) else 0
        self._known: tuple[int, torch.Tensor] | None = None  # bounds, and of which revision

    def __repr__(self) -> str:
        members = ", ".join(
            f"{name}: {len(storage)} rows"
            for name, storage in zip(self.names, self.storages, strict=True)
        )
        return few_lines(f"MixtureStorage({members})")

    @property
    def revision(self) -> int:  # type: ignore[override]
        """A number that changes whenever rows of a member are written or cleared."""
        return sum(storage.revision for storage in self.storages)

    def reference(self) -> StateDict:
        """Return the datasets of the members, which a state names in place of their rows."""
        datasets = [storage.reference() for storage in self.storages]
        members = [dataset for dataset in datasets if dataset is not None]
        if len(members) < len(datasets):
            pairs = zip(self.names, datasets, strict=True)
            own = [name for name, dataset in pairs if dataset is None]
            raise UsageError(
                f"{', '.join(own)}: rows of a buffer, which no dataset has. A state of a mixture "
                "names datasets and has no rows: save the buffer alone, and mix it again."
            )
        told = [{**each, "id": None} for each in members]  # the same data may have another name
        content = hashlib.sha256(json.dumps(told, sort_keys=True).encode("utf-8")).hexdigest()
        id = f"mixture of {', '.join(self.names)}"
        return {"id": id, "content": content, "num_rows": len(self), "members": members}

    @property
    def bounds(self) -> torch.Tensor:
        """A copy of where members begin, int64 ``[M + 1]``; member m is ``bounds[m:m + 2]``."""
        revision = self.revision
        if self._known is None or self._known[0] != revision:
            self._known = revision, torch.tensor([0, *accumulate(map(len, self.storages))])
        return self._known[1].clone()

    @property
    def lengths(self) -> torch.Tensor:
        """Rows of each member, int64 ``[M]``."""
        return self.bounds.diff()

    def __len__(self) -> int:
        return int(self.bounds[-1])

    def has(self, key: Key) -> bool:
        """Return whether rows have an entry."""
        return key == MEMBER or self.storages[0].has(key)

    def gather(self, index: torch.Tensor) -> Tree:
        """Return copies ``[B, ...]`` of the rows ``index`` int64 ``[B]``, as a nested dict."""
        if (block := self.read(index)) is not None:
            return block.tree(0, len(block))
        member, order, parts = self._parts(index)
        trees = [self.storages[number].gather(torch.from_numpy(rows)) for number, rows in parts]
        # One member's rows are in their order already.
        tree = trees[0] if len(trees) == 1 else join_trees(trees, torch.from_numpy(order))
        put(tree, MEMBER, torch.from_numpy(member).to(self.device))
        return tree

    def read(self, index: torch.Tensor) -> GatheredRows | None:
        """Return copies of the rows ``index`` int64 ``[B]`` in numpy's memory."""
        # None where a member has no faster way to arrays than by tensors.
        if not self.row_bytes:
            return None
        member, order, parts = self._parts(index)
        return self._join(parts, order, member)

    @cached_property
    def _join(self) -> Join:
        """What joins rows: all records at once, if members are whole datasets of one form."""
        datasets = [each.dataset for each in self.storages if isinstance(each, DatasetStorage)]
        packed = [rows for each in datasets if (rows := each.packed_rows) is not None]
        if len(packed) == len(self.storages) and have_one_form(packed):
            return RecordTable(packed, MEMBER[0]).read
        # Of a block without rows of each member. Not by self: a circle would keep files mapped.
        storages = self.storages
        nothing = [(number, np.empty(0, np.int64)) for number in range(len(storages))]
        joined = JoinedRows(blocks_of(storages, nothing), MEMBER[0])
        return lambda parts, order, member: joined.join(blocks_of(storages, parts), order, member)

    def _parts(self, index: torch.Tensor) -> tuple[np.ndarray, np.ndarray, MemberRowNumbers]:
        """Return the member of each row of a draw, the order to join parts in, and the parts."""
        #   rows      6 1 9 5     of members with the bounds 0 5 8 12
        #   member    1 0 2 1
        #   parts     1: 1 | 6 5: 1 0 | 9: 1      grouped by member, then as rows of the member
        #   order     1 0 3 2     where each row of the draw is among those of all parts
        bounds = self.bounds.numpy()
        rows = checked_numbers(index, int(bounds[-1]))
        member = bounds_reached(rows, bounds[1:-1])
        by_member = member.argsort(kind="stable")
        order = np.empty_like(by_member)
        order[by_member] = np.arange(len(rows))  # the inverse of the permutation that groups
        grouped = rows.take(by_member)
        parts, begin = [], 0
        for number, count in enumerate(np.bincount(member, minlength=1).tolist()):
            if count or not len(rows):  # of no rows the first member gives none
                mine = grouped[begin : begin + count] - bounds[number]
                parts.append((number, mine))
                begin += count
        return member.astype(np.int64), order, parts

    def get(self, index: torch.Tensor) -> TensorDict:
        """Return copies of the rows ``index`` int64 ``[B]`` as a TensorDict ``[B]``."""
        row = self.gather(index[:1])
        row_bytes = sum(leaf.nbytes for _, leaf in leaves_in(row) if isinstance(leaf, torch.Tensor))
        check_memory(len(index) * row_bytes, "The mixture")
        batch: TensorDict = self.as_batch(self.gather(index), index.shape)
        return batch

    def column(self, key: Key) -> Rows:
        """Return a copy of one entry of all rows; see ``Storage.column``."""
        if key == MEMBER:
            return torch.repeat_interleave(self.lengths)
        parts = [storage.column(key) for storage in self.storages]
        if isinstance(parts[0], list):  # of text
            return [value for part in parts for value in part]
        return torch.cat(parts)

    def scalar_column(self, key: Key) -> torch.Tensor:
        """Return a column of one number a row, ``[rows, 1]``."""
        if key == MEMBER:
            return torch.repeat_interleave(self.lengths).unsqueeze(1)
        parts = [storage.scalar_column(key) for storage in self.storages]
        return torch.cat([part.reshape(-1, 1) for part in parts])

    def trajectories(self, keys: TrajectoryKeys) -> TrajectoryIndex:
        """Return the trajectories of all members, as each tells them."""
        return join_trajectories([storage.trajectories(keys) for storage in self.storages])

    def __getstate__(self) -> StateDict:
        state = {**vars(self), "_known": None}
        state.pop("_join", None)  # made again
        return state


def blocks_of(storages: Sequence[Storage], parts: MemberRowNumbers) -> list[GatheredRows]:
    """Return the rows of members, all of which have a faster way to arrays."""
    blocks = [storages[number].read(torch.from_numpy(rows)) for number, rows in parts]
    assert None not in blocks, "row_bytes says that all members have one"
    return [block for block in blocks if block is not None]


def join_trees(trees: Sequence[Tree], order: torch.Tensor) -> Tree:
    """Return rows of several nested dicts with the same keys as one nested dict."""
    # trees: leaves `[n, ...]` each, which make one column `[n of all, ...]` side by side.
    # order: for each row wanted its number in that column, int64 `[B]`.
    return {name: _join([tree[name] for tree in trees], order) for name in trees[0]}


def _join(leaves: Sequence[Rows], order: torch.Tensor) -> Rows:
    first = leaves[0]
    if isinstance(first, dict):
        return join_trees(leaves, order)
    if isinstance(first, NonTensorStack):
        values = [value for leaf in leaves for value in leaf.tolist()]
        return stack_texts([values[row] for row in order.tolist()], tuple(first.batch_size[1:]))
    return take(join_tensors(leaves), order.to(first.device))


def join_trajectories(parts: Sequence[TrajectoryIndex]) -> TrajectoryIndex:
    """Return the trajectories of several storages whose rows are numbered one after the other."""
    lengths = torch.cat([part.lengths for part in parts])
    capacities = torch.tensor([part.capacity for part in parts])
    num_rows = int(capacities.sum())
    # The first row of each part: what its own numbers are moved by.
    begins = (capacities.cumsum(0) - capacities).tolist()
    if all(part.stride == 1 and part.order is None and not part.wraps for part in parts):
        starts = [part.starts + begin for part, begin in zip(parts, begins, strict=True)]
        return TrajectoryIndex(torch.cat(starts), lengths, 1, num_rows)
    # Every row by its number: rows of a trajectory are apart, or continue at the first row.
    order = [part.every_row()[2] + begin for part, begin in zip(parts, begins, strict=True)]
    return TrajectoryIndex(lengths.cumsum(0) - lengths, lengths, 1, num_rows, torch.cat(order))
