"""Rows as flat columns: their structure, grid and row types, and the comparison of new rows.

New rows have columns ``[environments..., time, ...]``; stored columns are flat, time first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property

import torch
from tensordict import (
    NonTensorData,
    TensorDictBase,
    is_non_tensor,
    is_tensor_collection,
    is_tensorclass,
)
from torch.utils import _pytree

from datasets_cli.errors import UnknownKey, WrongRows
from datasets_cli.replay.arguments import Rows, StateDict
from datasets_cli.replay.storages.collate import LeafColumn, ValueColumn, as_bits, make_batch
from datasets_cli.replay.storages.description import TensorBytes
from datasets_cli.schema.bits import MOVABLE, bits_dtype, checked_numbers, take_rows
from datasets_cli.schema.columns import Key, show_key, wrong_column
from datasets_cli.schema.shapes import RowNumbers
from datasets_cli.schema.tree import Tree, TreePlan, entry


def leaves_of(rows: Rows, parent: Key = ()) -> dict[Key, LeafColumn]:
    """Return the leaves of a TensorDict or a tensorclass by key."""
    shared: StateDict = {}  # one value for all rows of a tensorclass; None is the default
    if is_tensorclass(rows):
        others = rows._non_tensordict.items()
        shared = {name: value for name, value in others if value is not None}
        rows = rows._tensordict
    try:
        items = list(rows.items())
    except RuntimeError as error:
        raise WrongRows(
            f"{show_key(parent) or 'These rows'} cannot be one tensor each: {error}",
            key=parent,
            advice="ListStorage and LazyStackStorage take rows of unequal shapes.",
        ) from error
    leaves: dict[Key, LeafColumn] = {}
    for name, item in items:
        key = (*parent, name)
        if isinstance(item, torch.Tensor):
            leaves[key] = item
        elif is_non_tensor(item):
            leaves[key] = ValueColumn.of(item)
        elif is_tensor_collection(item):
            leaves |= leaves_of(item, key)
        else:
            raise not_a_tensor(show_key(key), item)
    for name, value in shared.items():
        leaves[*parent, name] = ValueColumn.of(NonTensorData(value, rows.batch_size))
    return leaves


def without_index(rows: Rows) -> Rows:
    """Return rows without the entry ``index``, which a batch or TorchRL's writer adds."""
    has_index = isinstance(rows, TensorDictBase) and "index" in rows.keys()  # noqa: SIM118
    return rows.exclude("index") if has_index else rows


def outline(rows: Rows) -> str:
    """Return the containers and types of rows for a message: ``dict(a: Tensor, b: int)``."""
    if isinstance(rows, Mapping | TensorDictBase):
        inside = [f"{name}: {outline(item)}" for name, item in rows.items()]
    elif isinstance(rows, tuple | list):
        inside = [outline(item) for item in rows]
    else:
        return type(rows).__name__
    shown = inside if len(inside) <= 20 else [*inside[:20], "..."]
    return f"{type(rows).__name__}({', '.join(shown)})"


def not_a_tensor(name: str, item: object) -> WrongRows:
    """Return the error of an entry that is not a tensor."""
    return WrongRows(
        f"{name} must be a tensor, not {type(item).__name__}.",
        key=name,
        expected="Tensor",
        found=type(item).__name__,
        advice="Tensor storages take tensors; ListStorage takes anything.",
    )


def inner_shape(data: Rows, ndim: int) -> tuple[int, ...]:
    """Return the batch size of a single row, if rows are a TensorDict or tensorclass."""
    return tuple(data.batch_size[ndim:]) if is_tensor_collection(data) else ()


@dataclass(frozen=True)
class Node:
    """A nested TensorDict of rows, with its batch size or class."""

    inner: tuple[int, ...]
    kind: type | None = None

    def build(self, tree: Tree, shape: torch.Size, device: torch.device | None) -> Rows:
        """Return the entries of rows ``[*shape]`` as a TensorDict or tensorclass."""
        if self.kind is None:
            return make_batch(tree, shape + self.inner, device)
        # A tensorclass has no field for entries that a batch adds, such as index.
        names = self.kind.__dataclass_fields__  # type: ignore[attr-defined]
        fields = {name: item for name, item in tree.items() if name in names}
        kind: Rows = self.kind
        return kind.from_tensordict(make_batch(fields, shape + self.inner, device))


class TensorDictStructure:
    """The keys of rows that are TensorDicts or tensorclasses."""

    def __init__(
        self,
        keys: Sequence[Key],
        values: Sequence[Key] = (),
        nodes: Mapping[Key, Node] | None = None,
    ) -> None:
        self.keys = tuple(keys)
        self.nodes = dict(nodes or {})
        self.leaves = (*self.keys, *values)
        self._plan = TreePlan(self.leaves)
        self._slots = [self._plan.slots[key] for key in self.leaves]
        self._root = self.nodes.get((), Node(()))
        self.row_batch_size = self._root.inner
        self.is_plain = not self.nodes or self.nodes == {(): Node(())}
        # The deepest first: each is put into its parent.
        below = [(key, node) for key, node in self.nodes.items() if key]
        self._below = sorted(below, key=lambda item: -len(item[0]))

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [show_key(key) for key in self.leaves]

    def flatten(self, rows: Rows) -> list[LeafColumn]:
        """Return the leaves in the order of ``leaves``: tensors, then other values."""
        if not is_tensor_collection(rows):
            raise WrongRows(
                f"The buffer holds TensorDicts with {', '.join(self.names)}, not {outline(rows)}.",
                expected=self.names,
                found=outline(rows),
            )
        leaves = leaves_of(rows)
        if leaves.keys() != self._plan.slots.keys():
            found = [show_key(key) for key in leaves]
            raise WrongRows(
                f"The buffer holds rows with {', '.join(self.names)}; these have "
                f"{', '.join(found) or 'no entry'}. Rows must have the same keys.",
                expected=self.names,
                found=found,
            )
        return [leaves[key] for key in self.leaves]

    def unflatten(self, columns: Sequence[Rows]) -> Rows:
        """Return the nested dict of the columns."""
        nodes = self._plan.new()
        for column, (node, name) in zip(columns, self._slots, strict=True):
            nodes[node][name] = column
        return nodes[0]

    def batch(self, tree: Tree, shape: torch.Size, device: torch.device | None) -> Rows:
        """Return the nested dict of rows ``[*shape]`` as TensorDicts or tensorclasses."""
        for key, node in self._below:
            above = entry(tree, key[:-1])
            above[key[-1]] = node.build(above[key[-1]], shape, device)
        return self._root.build(tree, shape, device)


class PytreeStructure:
    """The structure of rows that are a tensor, or tensors in tuples, lists and dicts."""

    row_batch_size: tuple[int, ...] = ()

    def __init__(self, rows: Rows) -> None:
        leaves, self.structure = _pytree.tree_flatten(rows)
        self._outline = outline(rows)
        self.names = _names(rows, len(leaves))

    def __getstate__(self) -> StateDict:
        # torch warns about pickles of its structures; a structure of numbers pickles silently.
        return vars(self) | {"structure": self.unflatten(range(len(self.names)))}

    def __setstate__(self, state: StateDict) -> None:
        vars(self).update(state)
        self.structure = _pytree.tree_structure(state["structure"])

    def flatten(self, rows: Rows) -> list[LeafColumn]:
        """Return the tensors."""
        leaves, structure = _pytree.tree_flatten(rows)
        if structure != self.structure:
            raise WrongRows(
                f"The buffer holds rows of the form {self._outline}, not {outline(rows)}.",
                expected=self._outline,
                found=outline(rows),
            )
        for name, leaf in zip(self.names, leaves, strict=True):
            if not isinstance(leaf, torch.Tensor):
                raise not_a_tensor(name, leaf)
        return leaves

    def unflatten(self, columns: Sequence[Rows]) -> Rows:
        """Return the structure with other tensors."""
        return _pytree.tree_unflatten(list(columns), self.structure)


Structure = TensorDictStructure | PytreeStructure
"""The containers of rows: TensorDicts, or any other structure of tensors."""


def structure_of(rows: Rows, ndim: int) -> Structure:
    """Return the structure of rows ``[*leading, ...]`` with ``ndim`` leading dimensions."""
    if not is_tensor_collection(rows):
        return PytreeStructure(rows)
    leaves = leaves_of(rows)
    tensors = [key for key, leaf in leaves.items() if isinstance(leaf, torch.Tensor)]
    values = [key for key in leaves if key not in tensors]
    plain = Node(inner_shape(rows, ndim))
    inside = {key[:depth] for key in leaves for depth in range(1, len(key))}
    nodes = {key: _node(_entry(rows, key), ndim) for key in inside}
    nodes = {key: node for key, node in nodes.items() if node != plain}
    return TensorDictStructure(tensors, values, nodes | {(): _node(rows, ndim)})


def _node(rows: Rows, ndim: int) -> Node:
    kind = type(rows) if is_tensorclass(rows) else None
    return Node(inner_shape(rows, ndim), kind)


def _entry(rows: Rows, key: Key) -> Rows:
    """Return a nested TensorDict or tensorclass."""
    for name in key:
        rows = rows.get(name)
    return rows


def _names(rows: Rows, count: int) -> list[str]:
    """Return the path to each tensor: its keys, numbers and attributes."""
    try:
        leaves: list[Rows] = _pytree.tree_flatten_with_path(rows)[0]
    except NotImplementedError:  # lazy stacks of TensorDicts in a structure have no paths
        return [str(number) for number in range(count)]
    return [".".join(str(astuple(part)[0]) for part in path) or "data" for path, _ in leaves]


RowType = tuple[torch.dtype | str, torch.Size]
"""The dtype of a column and the shape of one row; the dtype of other values is a text."""


def row_types_of(columns: Sequence[LeafColumn], ndim: int) -> list[RowType]:
    """Return the row type of each column."""
    return [(column.dtype, torch.Size(column.shape[ndim:])) for column in columns]


def check_leading(structure: Structure, columns: Sequence[LeafColumn], ndim: int) -> None:
    """Check that there are columns, and that their first ``ndim`` sizes are equal."""
    if not columns:
        raise WrongRows("These rows have no tensor: there is nothing to store.")
    leading = list(columns[0].shape[:ndim])
    for number, column in enumerate(columns):
        sizes = list(column.shape[:ndim])
        if len(sizes) == ndim and sizes == leading:
            continue
        names = structure.names
        if len(sizes) < ndim:
            shape = list(column.shape)
            raise WrongRows(
                f"{names[number]} has the shape {shape}; rows need {ndim} or more dimensions.",
                key=names[number],
                found=shape,
            )
        raise WrongRows(
            f"{names[0]} has {_shown(leading)} rows and {names[number]} has {_shown(sizes)}: "
            "expected the same number.",
            key=names[number],
            expected=leading,
            found=sizes,
        )


def _shown(sizes: list[int]) -> str:
    return str(sizes[0] if len(sizes) == 1 else sizes)


@dataclass(frozen=True)
class RowSchema:
    """The structure, grid and row types of stored rows."""

    structure: Structure
    grid: tuple[int, ...]
    row_types: list[RowType]

    @classmethod
    def of_first(
        cls, structure: Structure, columns: Sequence[LeafColumn], ndim: int, max_size: int
    ) -> RowSchema:
        """Return the schema of a storage, given the columns of its first rows."""
        side = _side_of(columns[0], ndim)
        steps = -(-max_size // max(1, math.prod(side)))  # rounded up to whole steps
        return cls(structure, (steps, *side), row_types_of(columns, ndim))

    @property
    def is_tensordict(self) -> bool:
        """Whether rows are TensorDicts or tensorclasses."""
        return isinstance(self.structure, TensorDictStructure)

    @property
    def leaves(self) -> tuple[Key, ...]:
        """The keys of all columns; empty if rows are not TensorDicts."""
        structure = self.structure
        return structure.leaves if isinstance(structure, TensorDictStructure) else ()

    @property
    def tensor_types(self) -> list[tuple[torch.dtype, torch.Size]]:
        """The row types of the columns that are tensors."""
        return [(dtype, size) for dtype, size in self.row_types if isinstance(dtype, torch.dtype)]

    @cached_property
    def has_values(self) -> bool:
        """Whether the last columns are values other than tensors."""
        return len(self.tensor_types) < len(self.row_types)

    @cached_property
    def is_kept_unchanged(self) -> bool:
        """Whether stored columns have the dtypes of the rows."""
        # torch cannot move some dtypes; their columns are stored as bits.
        return MOVABLE.issuperset(dtype for dtype, _ in self.row_types)

    @cached_property
    def width(self) -> int:
        """Rows of one time step."""
        return math.prod(self.grid[1:])

    @cached_property
    def capacity(self) -> int:
        """Rows that fit."""
        return math.prod(self.grid)

    def flatten(self, columns: Sequence[LeafColumn], device: torch.device) -> list[LeafColumn]:
        """Return columns ``[environments..., time, ...]`` as stored: flat, time first.

        Raise ``WrongRows`` if a dtype or a shape differs from that of the stored rows.
        """
        ndim = len(self.grid)
        leading = columns[0].shape[:ndim]
        if len(leading) < ndim or (ndim > 1 and _side_of(columns[0], ndim) != self.grid[1:]):
            raise self._difference(columns)
        for column, (dtype, size) in zip(columns, self.row_types, strict=True):
            shape = column.shape
            if shape[:ndim] != leading or column.dtype != dtype or shape[ndim:] != size:
                raise self._difference(columns)
        stored = columns if self.is_kept_unchanged else [as_bits(column) for column in columns]
        if ndim > 1:
            stored = [column.transpose(0, ndim - 1).flatten(0, ndim - 1) for column in stored]
        # A copy to another device may fail: it is made before any column is written.
        return [
            column.detach().to(device) if isinstance(column, torch.Tensor) else column
            for column in stored
        ]

    def _difference(self, columns: Sequence[LeafColumn]) -> WrongRows:
        """Return the error of the first column that differs from the stored one."""
        ndim, names = len(self.grid), self.structure.names
        for name, column, (dtype, _) in zip(names, columns, self.row_types, strict=True):
            if isinstance(column, ValueColumn) and isinstance(dtype, torch.dtype):
                return not_a_tensor(name, next(iter(column.values.flat), None))
            if isinstance(column, torch.Tensor) and isinstance(dtype, str):
                return WrongRows(
                    f"{name} is text or another value in the storage, and a tensor in these rows.",
                    key=name,
                    found="Tensor",
                    advice="Write the same kind of value, or write to another storage.",
                )
        check_leading(self.structure, columns, ndim)
        if (side := _side_of(columns[0], ndim)) != self.grid[1:]:
            expected, found = _environments(self.grid[1:]), _environments(side)
            return WrongRows(
                f"Steps of {found} environments do not fit a storage with steps of {expected}.",
                expected=expected,
                found=found,
            )
        types = zip(names, self.row_types, row_types_of(columns, ndim), strict=True)
        name, stored, new = next(each for each in types if each[1] != each[2])
        if new[0] != stored[0]:
            return WrongRows(
                f"{name} is {stored[0]} in the storage and {new[0]} in these rows.",
                key=name,
                expected=stored[0],
                found=new[0],
                advice=f"Pass {name} as {stored[0]}, such as by .to({stored[0]}).",
            )
        return WrongRows(
            f"{name} has the shape {list(stored[1])} a row in the storage, and {list(new[1])} in "
            "these rows.",
            key=name,
            expected=list(stored[1]),
            found=list(new[1]),
            advice="Reshape them, or write them to another storage.",
        )

    def unflatten(self, columns: Sequence[Rows]) -> Rows:
        """Return stored columns ``[n, ...]`` as rows; TensorDicts as their nested dict."""
        return self.structure.unflatten(
            [
                column.view(dtype) if isinstance(dtype, torch.dtype) else column.as_entry()
                for column, (dtype, _) in zip(columns, self.row_types, strict=True)
            ]
        )

    def batch(self, tree: Tree, shape: torch.Size, device: torch.device) -> Rows:
        """Return the nested dict of rows ``[*shape]`` as TensorDicts or tensorclasses."""
        # Nested ones have the batch sizes and classes that were written.
        structure = self.structure
        assert isinstance(structure, TensorDictStructure)
        if structure.is_plain:
            return make_batch(tree, shape, device)
        return structure.batch(tree, shape, device)


def _side_of(column: LeafColumn, ndim: int) -> tuple[int, ...]:
    """Return the environments of a column ``[environments..., time, ...]``, as in a grid."""
    return tuple(column.transpose(0, ndim - 1).shape[1:ndim])


def _environments(side: Sequence[int]) -> str:
    """Return the numbers of environments in the order of the data: the last of a grid first."""
    return " x ".join(map(str, (*side[-1:], *side[:-1])))


class RowColumns:
    """Rows as flat columns ``[capacity, ...]``: a batch is one copy of rows a column."""

    def __init__(self, schema: RowSchema, columns: Sequence[LeafColumn]) -> None:
        self.schema = schema
        self.columns = list(columns)

    def gather(self, index: RowNumbers) -> Rows:
        """Return copies of rows on their device; TensorDicts as their nested dict."""
        if index.is_cpu:  # in numpy's one thread; see `take_rows`
            numbers = checked_numbers(index, len(self.columns[0]))
            columns = [
                take_rows(column, numbers)
                if isinstance(column, torch.Tensor)
                else column.index_select(0, index)
                for column in self.columns
            ]
        else:
            columns = [column.index_select(0, index) for column in self.columns]
        schema = self.schema
        whole = schema.structure if schema.is_kept_unchanged else schema
        return whole.unflatten(columns)

    def write(self, rows: slice | RowNumbers, columns: Sequence[Rows]) -> None:
        """Write columns ``[n, ...]``, flattened by the schema, to rows."""
        for stored, new in zip(self.columns, columns, strict=True):
            stored[rows] = new

    def clear_values(self) -> None:
        """Release all values that are not tensors."""
        self.columns = [
            ValueColumn.empty(column.shape) if isinstance(column, ValueColumn) else column
            for column in self.columns
        ]

    def by_environment(self, num_rows: int) -> tuple[Rows, torch.Size]:
        """Return copies of the first rows ``[environments..., time, ...]``, and their shape.

        TensorDicts are their nested dict.
        """
        # By column: a TensorDict would lose values that are not tensors when it is reshaped.
        side = self.schema.grid[1:]
        time, steps = len(side), num_rows // self.schema.width
        columns = [
            column[:num_rows].reshape(steps, *side, *column.shape[1:]).transpose(0, time).clone()
            for column in self.columns
        ]
        shape = torch.empty(steps, *side, device="meta").transpose(0, time).shape
        return self.schema.unflatten(columns), shape

    def has(self, key: Key) -> bool:
        """Return whether a tensor has this key."""
        structure = self.schema.structure
        return isinstance(structure, TensorDictStructure) and key in structure.keys

    def leaf(self, key: Key, num_rows: int) -> torch.Tensor:
        """Return the first rows of a column ``[num_rows, ...]``, not a copy."""
        if self.has(key):
            number = self.schema.leaves.index(key)
            rows: Rows = self.columns[number][:num_rows]
            leaf: torch.Tensor = rows.view(self.schema.row_types[number][0])
            return leaf
        names = self.schema.structure.names
        raise UnknownKey(
            f"The storage has no {show_key(key)}. It has: {', '.join(names)}", key=key, found=names
        )

    def numbers(self, key: Key, num_rows: int) -> torch.Tensor:
        """Return a column of one number per row, ``[T, W]``: T steps of W environments."""
        column = self.leaf(key, num_rows)
        if column.numel() != num_rows:
            raise wrong_column(key, "one number per row", tuple(column.shape[1:]))
        return column.reshape(-1, self.schema.width)

    def snapshot(self, num_rows: int) -> RowsSnapshot:
        """Return the first rows in a form that can be pickled."""
        rows = [column[:num_rows] for column in self.columns]
        columns = [
            column.clone() if isinstance(column, ValueColumn) else TensorBytes.of(column)
            for column in rows
        ]
        return RowsSnapshot(self.schema, columns)


@dataclass(frozen=True)
class RowsSnapshot:
    """The first rows of a storage, to be copied or pickled."""

    schema: RowSchema
    columns: list[TensorBytes | ValueColumn]

    def restored(self, device: torch.device) -> RowColumns:
        """Return new columns with these rows."""
        rows = new_columns(self.schema, device)
        columns = [
            column.restored() if isinstance(column, TensorBytes) else column
            for column in self.columns
        ]
        rows.write(slice(0, len(columns[0])), columns)
        return rows


def new_columns(
    schema: RowSchema, device: torch.device, tensors: Sequence[torch.Tensor] = ()
) -> RowColumns:
    """Return empty columns of a schema on a device; ``tensors`` are the first of them."""
    types = schema.row_types[len(tensors) :]
    added = [_empty_column(row_type, schema.capacity, device) for row_type in types]
    return RowColumns(schema, [*tensors, *added])


def _empty_column(row_type: RowType, capacity: int, device: torch.device) -> LeafColumn:
    dtype, size = row_type
    if isinstance(dtype, str):
        return ValueColumn.empty((capacity, *size))
    return torch.empty((capacity, *size), dtype=bits_dtype(dtype), device=device)
