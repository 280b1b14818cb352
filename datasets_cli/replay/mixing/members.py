"""The members of a mixture, and their rows as one storage."""

from __future__ import annotations

import hashlib
import json
from collections import ChainMap, Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from itertools import accumulate

import numpy as np
import torch
from tensordict import NonTensorStack, TensorDict

from datasets_cli.core.quantities import few_lines
from datasets_cli.core.system_errors import check_memory
from datasets_cli.errors import Unsupported, UsageError, WrongRows, by_reader, wrong_value
from datasets_cli.replay.arguments import Rows, StateDict
from datasets_cli.replay.batches.reader import BatchReader
from datasets_cli.replay.buffer.buffer import ReplayBuffer
from datasets_cli.replay.mixing.column_mapping import (
    ColumnForm,
    ColumnMap,
    Member,
    check_columns,
    column_map,
    first_row,
)
from datasets_cli.replay.samplers.epochs import bounds_reached
from datasets_cli.replay.samplers.rows import RandomSampler
from datasets_cli.replay.storages.collate import stack_texts
from datasets_cli.replay.storages.dataset import DatasetStorage
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.storages.sequences import Sequences, dataset_of_rows
from datasets_cli.replay.trajectories.bounds import TrajectoryIndex, TrajectoryKeys
from datasets_cli.schema.bits import checked_numbers, join_tensors, take, to_array
from datasets_cli.schema.columns import MEMBER, Key, show_key
from datasets_cli.schema.shapes import Lengths, Offsets, RowArray, RowNumbers
from datasets_cli.schema.tree import Tree, TreePlan, grow_tree, leaves_in, put
from datasets_cli.store.layouts.compact_rows import RecordTable, have_one_form
from datasets_cli.store.layouts.gathered import GatheredLeaves, JoinedRows
from datasets_cli.store.layouts.protocol import GatheredRows
from datasets_cli.store.manifest import Manifest

MEMBER_BYTES = 8

MemberRowNumbers = Sequence[tuple[int, RowArray]]
"""Pairs of a member and the numbers of its rows."""

Join = Callable[[MemberRowNumbers, np.ndarray, np.ndarray], GatheredRows]
"""Joins rows of members; see ``MixtureStorage._parts`` for the arguments."""


class MixtureStorage(Storage):
    """The rows of several storages, numbered consecutively.

        member      0 0 0 0 0 1 1 1 2 2 2 2
        row         0 1 2 3 4 5 6 7 8 9 10 11      bounds 0 5 8 12

    Each row also has the number of its member, in ``"member"``. A trajectory never extends over two
    members. ``"episode"`` remains the number of a trajectory in its member.
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
        self._known: tuple[int, Offsets] | None = None  # the bounds, and their revision

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
        """Return the ids and contents of the members' datasets; a state has these, not rows."""
        datasets = [storage.reference() for storage in self.storages]
        members = [dataset for dataset in datasets if dataset is not None]
        if len(members) < len(datasets):
            pairs = zip(self.names, datasets, strict=True)
            buffers = [name for name, dataset in pairs if dataset is None]
            raise Unsupported(
                f"The state of a mixture has ids of datasets; {', '.join(buffers)} is a buffer of "
                "written rows.",
                expected="datasets",
                found=buffers,
                advice="Save the buffer separately, load it, and make the mixture again.",
            )
        # Without ids: the same data may be installed under another id.
        contents = [{**each, "id": None} for each in members]
        content = hashlib.sha256(json.dumps(contents, sort_keys=True).encode("utf-8")).hexdigest()
        id = f"mixture of {', '.join(self.names)}"
        return {"id": id, "content": content, "num_rows": len(self), "members": members}

    @property
    def bounds(self) -> Offsets:
        """The first row of each member, and the number of all rows; a copy, int64 ``[M + 1]``."""
        revision = self.revision
        if self._known is None or self._known[0] != revision:
            self._known = revision, torch.tensor([0, *accumulate(map(len, self.storages))])
        return self._known[1].clone()

    @property
    def lengths(self) -> Lengths:
        """Number of rows of each member, int64 ``[M]``."""
        return self.bounds.diff()

    def __len__(self) -> int:
        return int(self.bounds[-1])

    def has(self, key: Key) -> bool:
        """Return whether rows have an entry."""
        return key == MEMBER or self.storages[0].has(key)

    def gather(self, index: RowNumbers) -> Tree:
        """Return copies ``[B, ...]`` of rows, as a nested dict."""
        if (block := self.read(index)) is not None:
            return block.tree(0, len(block))
        member, order, parts = self._parts(index)
        trees = [self.storages[number].gather(torch.from_numpy(rows)) for number, rows in parts]
        # Rows of a single member are in order already.
        tree = trees[0] if len(trees) == 1 else join_trees(trees, torch.from_numpy(order))
        put(tree, MEMBER, torch.from_numpy(member).to(self.device))
        return tree

    def read(self, index: RowNumbers) -> GatheredRows | None:
        """Return copies of rows in numpy's memory, or None if a member only has tensors."""
        if not self.row_bytes:
            return None
        member, order, parts = self._parts(index)
        return self._join(parts, order, member)

    @cached_property
    def _join(self) -> Join:
        """The function that joins rows; one gather of records if all members are packed alike."""
        datasets = [each.dataset for each in self.storages if isinstance(each, DatasetStorage)]
        packed = [rows for each in datasets if (rows := each.packed_rows) is not None]
        if len(packed) == len(self.storages) and have_one_form(packed):
            return RecordTable(packed, MEMBER[0]).read
        # Prepared with a block of 0 rows of each member. The function does not refer to self: a
        # reference cycle would keep files mapped.
        storages = self.storages
        empty = [(number, np.empty(0, np.int64)) for number in range(len(storages))]
        joined = JoinedRows(blocks_of(storages, empty), MEMBER[0])
        return lambda parts, order, member: joined.join(blocks_of(storages, parts), order, member)

    def _parts(self, index: RowNumbers) -> tuple[np.ndarray, np.ndarray, MemberRowNumbers]:
        """Return the member of each row of a draw, the order of rows in parts, and the parts."""
        #   rows      6 1 9 5     of members with the bounds 0 5 8 12
        #   member    1 0 2 1
        #   grouped   1 | 6 5 | 9                 by member, in the order of the draw
        #   parts     0: 1 | 1: 1 0 | 2: 1        minus the bound of the member
        #   order     1 0 3 2     the position of each row of the draw in the parts
        bounds = self.bounds.numpy()
        rows = checked_numbers(index, int(bounds[-1]))
        member = bounds_reached(rows, bounds[1:-1])
        by_member = member.argsort(kind="stable")
        order = np.empty_like(by_member)
        order[by_member] = np.arange(len(rows))  # the inverse of the grouping permutation
        grouped = rows.take(by_member)
        parts, begin = [], 0
        for number, count in enumerate(np.bincount(member, minlength=1).tolist()):
            if count or not len(rows):  # for an empty draw, 0 rows of the first member
                parts.append((number, grouped[begin : begin + count] - bounds[number]))
                begin += count
        return member.astype(np.int64), order, parts

    def get(self, index: RowNumbers) -> TensorDict:
        """Return copies of rows as a TensorDict ``[B]``."""
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
        if isinstance(parts[0], list):  # text
            return [value for part in parts for value in part]
        return torch.cat(parts)

    def scalar_column(self, key: Key) -> torch.Tensor:
        """Return a column of one number per row, ``[rows, 1]``."""
        if key == MEMBER:
            return torch.repeat_interleave(self.lengths).unsqueeze(1)
        parts = [storage.scalar_column(key) for storage in self.storages]
        return torch.cat([part.reshape(-1, 1) for part in parts])

    def trajectories(self, keys: TrajectoryKeys) -> TrajectoryIndex:
        """Return the trajectories of all members."""
        return join_trajectories([storage.trajectories(keys) for storage in self.storages])

    def __getstate__(self) -> StateDict:
        state = {**vars(self), "_known": None}
        state.pop("_join", None)  # computed again
        return state


def blocks_of(storages: Sequence[Storage], parts: MemberRowNumbers) -> list[GatheredRows]:
    """Return rows of members in numpy's memory."""
    blocks = [storages[number].read(torch.from_numpy(rows)) for number, rows in parts]
    assert None not in blocks, "row_bytes is positive"
    return [block for block in blocks if block is not None]


def join_trees(trees: Sequence[Tree], order: RowNumbers) -> Tree:
    """Return rows of several nested dicts with the same keys as one nested dict.

    Row b of the result is row ``order[b]`` of the concatenated leaves.
    """
    return {name: _join([tree[name] for tree in trees], order) for name in trees[0]}


def _join(leaves: Sequence[Rows], order: RowNumbers) -> Rows:
    first = leaves[0]
    if isinstance(first, dict):
        return join_trees(leaves, order)
    if isinstance(first, NonTensorStack):
        values = [value for leaf in leaves for value in leaf.tolist()]
        return stack_texts([values[row] for row in order.tolist()], tuple(first.batch_size[1:]))
    return take(join_tensors(leaves), order.to(first.device))


def join_trajectories(parts: Sequence[TrajectoryIndex]) -> TrajectoryIndex:
    """Return the trajectories of several storages whose rows are numbered consecutively."""
    lengths = torch.cat([part.lengths for part in parts])
    capacities = torch.tensor([part.capacity for part in parts])
    num_rows = int(capacities.sum())
    # The first row of each part, which is added to its row numbers.
    begins = (capacities.cumsum(0) - capacities).tolist()
    if all(part.stride == 1 and part.order is None and not part.wraps for part in parts):
        starts = [part.starts + begin for part, begin in zip(parts, begins, strict=True)]
        return TrajectoryIndex(torch.cat(starts), lengths, 1, num_rows)
    # Rows of a trajectory are not consecutive, or wrap around: list the number of every row.
    order = [part.every_row()[2] + begin for part, begin in zip(parts, begins, strict=True)]
    return TrajectoryIndex(lengths.cumsum(0) - lengths, lengths, 1, num_rows, torch.cat(order))


class MemberRows(Storage):
    """The rows of a dataset or of a buffer, with their columns mapped.

    A buffer's lock is held while its rows are gathered.
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
        # 0: rows of a buffer may change, so they are not read ahead.
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
        """Whether rows are TensorDicts; False for a buffer before its first row."""
        return self._rows.is_tensordict

    @property
    def row_batch_size(self) -> tuple[int, ...]:  # type: ignore[override]
        """Batch size of each row."""
        return self._rows.row_batch_size

    @property
    def revision(self) -> int:  # type: ignore[override]
        """A number that changes whenever rows are written or cleared, or storage is replaced."""
        rows = self._rows
        return hash((id(rows), rows.revision))

    def reference(self) -> StateDict | None:
        """Return the dataset's reference and the column mapping, or None for a buffer."""
        dataset = self._rows.reference()
        if dataset is None or self._map is None:
            return None
        return {**dataset, "columns": self._map.to_json()}

    def has(self, key: Key) -> bool:
        """Return whether rows have an entry."""
        if self._map is None:
            return self._rows.has(key)
        return key in self._old_keys or key in self._map.fill

    def gather(self, index: RowNumbers) -> Tree:
        """Return copies ``[B, ...]`` of rows, as a nested dict."""
        with self._lock:
            tree: Tree = self._rows.gather(index)
        if self._map is None:
            return tree
        return grow_tree(self._map.apply(dict(leaves_in(tree)), len(index), self.device))

    def read(self, index: RowNumbers) -> GatheredRows | None:
        """Return copies of rows in numpy's memory, or None if the rows are a buffer's."""
        block = self._rows.read(index) if self.row_bytes else None
        if block is None or self._map is None:
            return block
        mapped = self._map.apply(dict(leaves_in(block.tree(0, len(block)))), len(block), None)
        if self._plan is None:
            self._plan = TreePlan(mapped)
        slots = [self._plan.slots[key] for key in mapped]
        return GatheredLeaves(self._plan, slots, [*map(to_array, mapped.values())], len(index))

    def scalar_column(self, key: Key) -> torch.Tensor:
        """Return a column of one number per row, ``[rows, 1]``, not scaled, cast or padded."""
        if self._map is not None and key in self._map.fill:
            return self._map.fill[key].expand(len(self), 1)
        with self._lock:
            return self._rows.scalar_column(self._old_key(key))

    def trajectories(self, keys: TrajectoryKeys) -> TrajectoryIndex:
        """Return the trajectories of the rows."""
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


MemberLike = ReplayBuffer | Storage | Member
"""A member of a mixture: a buffer, the storage of a dataset, or a ``Member``."""


def mixture_storage(members_like: Sequence[MemberLike]) -> MixtureStorage:
    """Return the rows of members as one storage."""
    members = [each if isinstance(each, Member) else Member(each) for each in members_like]
    if not members:
        raise UsageError(
            "A mixture needs members; found none.",
            argument="members",
            advice="Pass them as Mixture({buffer: weight, another: weight}).",
        )
    storages = [_rows_of(member.source) for member in members]
    names = _names(members, storages)
    forms = [
        {key: ColumnForm.of(leaf) for key, leaf in first_row(storage, name).items()}
        for storage, name in zip(storages, names, strict=True)
    ]
    maps = _column_maps(members, forms, names)
    mapped = [
        MemberRows(storage, column_map, columns) if column_map else storage
        for storage, column_map, columns in zip(storages, maps, forms, strict=True)
    ]
    _check_same_device(mapped, names)
    check_columns([first_row(*pair) for pair in zip(mapped, names, strict=True)], names)
    written = [
        name for name, rows in zip(names, storages, strict=True) if isinstance(rows, MemberRows)
    ]
    return MixtureStorage(mapped, names, written)


def _rows_of(source: ReplayBuffer | Storage) -> Storage:
    """Return the rows of a member, which only the mixture samples."""
    if isinstance(source, ReplayBuffer):
        _check_plain(source)
        storage = source.reader.storage
        return MemberRows(source.reader) if storage.is_writable else storage
    if not hasattr(source, "gather") or not hasattr(source, "has"):
        raise wrong_value(
            "members",
            "a replay buffer such as ExperienceReplay(id), a storage, or a Member",
            type(source),
        )
    if source.is_writable:
        raise Unsupported(
            f"A {type(source).__name__} can be written while the mixture reads it.",
            argument="members",
            found=type(source).__name__,
            advice="Pass its ReplayBuffer, which locks it.",
        )
    return source


def _check_plain(buffer: ReplayBuffer) -> None:
    """Check that a buffer has no sampler, transform or other part that a mixture would ignore."""
    reader = buffer.reader
    ignored = {
        f"sampler={reader.sampler!r}": type(reader.sampler) is not RandomSampler,
        f"transform={reader.transform!r}": bool(reader.transform),
        "collate_fn=": reader.collate_fn is not None,
        "shared=True": buffer.shared,
        "pin_memory=True": reader.storage.device_options.pin_memory,
    }
    if names := [name for name, is_set in ignored.items() if is_set]:
        raise Unsupported(
            f"A member of the mixture has {', '.join(names)}, which the mixture would ignore.",
            argument="members",
            found=names,
            advice="Open the member without, and pass it to the mixture; for one member pass "
            "Member(..., rename=, scale=, cast=), or a dataset that preprocess() wrote.",
        )


def _names(members: Sequence[Member], storages: Sequence[Storage]) -> list[str]:
    """Return a unique name for each member; a repeated name becomes ``name (2)``."""
    names: list[str] = []
    seen: Counter[str] = Counter()
    for number, (member, storage) in enumerate(zip(members, storages, strict=True)):
        manifest = manifest_of(storage)
        name = member.name or (f"buffer {number}" if manifest is None else manifest.id)
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return names


def _column_maps(
    members: Sequence[Member], forms: Sequence[dict[Key, ColumnForm]], names: Sequence[str]
) -> list[ColumnMap]:
    maps = []
    for number, (member, name) in enumerate(zip(members, names, strict=True)):
        others = ChainMap(*forms[:number], *forms[number + 1 :])  # the first member with a key
        maps.append(column_map(member, name, forms[number], others))
        if MEMBER in forms[number] and maps[-1].new_key(MEMBER) == MEMBER:
            raise WrongRows(
                f"{name} has a column {show_key(MEMBER)}, the key of the member's number in "
                "batches of a mixture.",
                argument="members",
                key=MEMBER,
                advice=by_reader(
                    "Rename it first: rlds preprocess ID --rename member=other --name NAME",
                    "Rename it: Member(..., rename={'member': 'other'}).",
                ),
            )
    return maps


def _check_same_device(storages: Sequence[Storage], names: Sequence[str]) -> None:
    devices = [str(storage.device or "cpu") for storage in storages]
    if len(set(devices)) > 1:
        found = [f"{name} on {device}" for name, device in zip(names, devices, strict=True)]
        raise UsageError(
            f"The members of a mixture must be on one device; found {', '.join(found)}.",
            argument="members",
            expected="one device",
            found=found,
            advice="Open them with the same device=.",
        )


def manifest_of(storage: Storage) -> Manifest | None:
    """Return the manifest of a storage's dataset, or None if its rows are not a dataset's."""
    dataset = storage.dataset if isinstance(storage, Sequences) else dataset_of_rows(storage)
    return None if dataset is None else dataset.manifest
