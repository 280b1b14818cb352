"""Rows as flat columns: their form, the grid that they fill, and the type of each column.

Columns are given as users have them, ``[environments..., time, ...]``, and kept flat, time first:
what a storage of tensors keeps, and how it is read and written.
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
from datasets_cli.schema.columns import Key, show_key
from datasets_cli.schema.tree import Tree, TreePlan, entry


def leaves_of(rows: Rows, above: Key = ()) -> dict[Key, LeafColumn]:
    """Return the leaves of a TensorDict or a tensorclass."""
    leaves: dict[Key, LeafColumn] = {}
    for name, item in _items(rows, above):
        key = (*above, name)
        if isinstance(item, torch.Tensor):
            leaves[key] = item
        elif is_non_tensor(item):
            leaves[key] = ValueColumn.of(item)
        elif is_tensor_collection(item):
            leaves |= leaves_of(item, key)
        else:
            raise no_tensor(show_key(key), item)
    return leaves


def _items(rows: Rows, above: Key) -> list[tuple[str, Rows]]:
    """Return the entries of a TensorDict or a tensorclass, by name."""
    shared: StateDict = {}  # by all rows of a tensorclass; None is the default
    if is_tensorclass(rows):
        others = rows._non_tensordict.items()
        shared = {name: value for name, value in others if value is not None}
        rows = rows._tensordict
    try:
        entries = list(rows.items())
    except RuntimeError as error:
        raise WrongRows(
            f"{show_key(above) or 'These rows'} cannot be one tensor each: {error}",
            key=above,
            advice="ListStorage and LazyStackStorage take rows of unequal shapes.",
        ) from error
    values = [(name, NonTensorData(value, rows.batch_size)) for name, value in shared.items()]
    return entries + values


def outline(rows: Rows) -> str:
    """Return the containers and kinds of rows in a few words: ``dict(a: Tensor, b: int)``."""
    if isinstance(rows, Mapping | TensorDictBase):
        inside = [f"{name}: {outline(item)}" for name, item in rows.items()]
    elif isinstance(rows, tuple | list):
        inside = [outline(item) for item in rows]
    else:
        return type(rows).__name__
    shown = inside if len(inside) <= 20 else [*inside[:20], "..."]
    return f"{type(rows).__name__}({', '.join(shown)})"


def no_tensor(name: str, item: object) -> WrongRows:
    """Return the error of an entry that is not a tensor."""
    return WrongRows(
        f"{name} is not a tensor but {type(item).__name__}.",
        key=name,
        expected="Tensor",
        found=type(item).__name__,
        advice="Tensor storages take tensors; ListStorage takes anything.",
    )


def inner_shape(data: Rows, ndim: int) -> tuple[int, ...]:
    """Return the batch size of each single row, of a TensorDict or tensorclass."""
    return tuple(data.batch_size[ndim:]) if is_tensor_collection(data) else ()


@dataclass(frozen=True)
class Node:
    """A TensorDict of rows that is more than a dict of its entries."""

    inner: tuple[int, ...]
    kind: type | None = None

    def made(self, tree: Tree, shape: torch.Size, device: torch.device | None) -> Rows:
        """Return the entries of rows ``[*shape]`` as what they were."""
        if self.kind is None:
            return make_batch(tree, shape + self.inner, device)
        # What a batch carries beside its rows, such as index, has no place in a tensorclass.
        names = self.kind.__dataclass_fields__  # type: ignore[attr-defined]
        known = {name: item for name, item in tree.items() if name in names}
        kind: Rows = self.kind
        return kind.from_tensordict(make_batch(known, shape + self.inner, device))


class TensorDictForm:
    """The form of a TensorDict, or of a tensorclass."""

    def __init__(
        self,
        keys: Sequence[Key],
        values: Sequence[Key] = (),
        nodes: Mapping[Key, Node] | None = None,
    ) -> None:
        self.keys = tuple(keys)
        self.values = tuple(values)
        self.nodes = dict(nodes or {})
        self.leaves = (*self.keys, *self.values)
        self._plan = TreePlan(self.leaves)
        self._places = [self._plan.slots[key] for key in self.leaves]
        self._root = self.nodes.get((), Node(()))
        self.row_batch_size = self._root.inner
        self.is_plain = not self.nodes or self.nodes == {(): Node(())}
        # The deepest first, because each is put into the one that holds it.
        below = [(key, node) for key, node in self.nodes.items() if key]
        self._below = sorted(below, key=lambda item: -len(item[0]))

    @property
    def names(self) -> list[str]:
        """The columns' names."""
        return [show_key(key) for key in self.leaves]

    def flatten(self, rows: Rows) -> list[LeafColumn]:
        """Return the leaves in the order of the keys, those that are not tensors after the
        others.
        """
        if not is_tensor_collection(rows):
            raise WrongRows(
                f"The buffer holds TensorDicts with {', '.join(self.names)}, not {outline(rows)}.",
                expected=self.names,
                found=outline(rows),
            )
        leaves = leaves_of(rows)
        if leaves.keys() != set(self.leaves):
            found = [show_key(key) for key in leaves]
            raise WrongRows(
                f"The buffer holds rows with {', '.join(self.names)}; these have "
                f"{', '.join(found) or 'nothing'}. Rows must have the same keys.",
                expected=self.names,
                found=found,
            )
        for key in self.values:
            if isinstance(leaves[key], torch.Tensor):
                raise WrongRows(
                    f"{show_key(key)} is text or another value in the storage, and a tensor in "
                    "these rows.",
                    key=show_key(key),
                    found="Tensor",
                    advice="Write the same kind of value, or write to another storage.",
                )
        for key in self.keys:
            if isinstance(value := leaves[key], ValueColumn):
                raise no_tensor(show_key(key), next(iter(value.values.flat), None))
        return [leaves[key] for key in self.leaves]

    def unflatten(self, columns: Sequence[Rows]) -> Rows:
        """Return the nested dict of the leaves."""
        nodes = self._plan.new()
        for column, (node, name) in zip(columns, self._places, strict=True):
            nodes[node][name] = column
        return nodes[0]

    def batch(self, tree: Tree, shape: torch.Size, device: torch.device | None) -> Rows:
        """Return the nested dict of rows ``[*shape]`` as what they were."""
        for key, node in self._below:
            above = entry(tree, key[:-1])
            above[key[-1]] = node.made(above[key[-1]], shape, device)
        return self._root.made(tree, shape, device)


class PytreeForm:
    """The form of a tensor, or of tensors in tuples, lists and dicts."""

    row_batch_size: tuple[int, ...] = ()

    def __init__(self, rows: Rows) -> None:
        leaves, self.structure = _pytree.tree_flatten(rows)
        self._outline = outline(rows)
        self.names = _names(rows, len(leaves))

    def __getstate__(self) -> StateDict:
        # torch warns of pickles of its structures; that of a few numbers is the same.
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
                raise no_tensor(name, leaf)
        return leaves

    def unflatten(self, columns: Sequence[Rows]) -> Rows:
        """Return the structure with other tensors."""
        return _pytree.tree_unflatten(list(columns), self.structure)


Form = TensorDictForm | PytreeForm
"""The form of rows: of TensorDicts, or of any other structure of tensors."""


def form_of(rows: Rows, ndim: int) -> Form:
    """Return the form of some rows."""
    if not is_tensor_collection(rows):
        return PytreeForm(rows)
    leaves = leaves_of(rows)
    tensors = [key for key, leaf in leaves.items() if isinstance(leaf, torch.Tensor)]
    values = [key for key in leaves if key not in tensors]
    plain = Node(inner_shape(rows, ndim))
    inside = {key[:depth] for key in leaves for depth in range(1, len(key))}
    nodes = {key: _node(_entry(rows, key), ndim) for key in inside}
    nodes = {key: node for key, node in nodes.items() if node != plain}
    return TensorDictForm(tensors, values, nodes | {(): _node(rows, ndim)})


def _node(rows: Rows, ndim: int) -> Node:
    kind = type(rows) if is_tensorclass(rows) else None
    return Node(inner_shape(rows, ndim), kind)


def _entry(rows: Rows, key: Key) -> Rows:
    """Return a TensorDict or tensorclass within another."""
    for name in key:
        rows = rows.get(name)
    return rows


def _names(rows: Rows, count: int) -> list[str]:
    """Return what leads to each tensor: keys, numbers and attributes."""
    try:
        leaves: list[Rows] = _pytree.tree_flatten_with_path(rows)[0]
    except NotImplementedError:  # lazy stacks of TensorDicts in a structure have no paths
        return [str(number) for number in range(count)]
    return [".".join(str(astuple(part)[0]) for part in path) or "data" for path, _ in leaves]


def check_leading(form: Form, columns: Sequence[LeafColumn], ndim: int) -> None:
    """Check that there are columns, and that their first ``ndim`` dimensions are the same."""
    if not columns:
        raise WrongRows("These rows have no tensor: there is nothing to store.")
    leading = columns[0].shape[:ndim]
    if len(leading) < ndim:
        raise _other_leading(form, columns, ndim)
    for column in columns:
        if column.shape[:ndim] != leading:
            raise _other_leading(form, columns, ndim)


def _other_leading(form: Form, columns: Sequence[LeafColumn], ndim: int) -> WrongRows:
    """Return the error of columns whose first dimensions are too few, or differ."""
    leading = list(columns[0].shape[:ndim])
    for name, column in zip(form.names, columns, strict=True):
        if column.ndim < ndim:
            shape = list(column.shape)
            return WrongRows(
                f"{name} has the shape {shape}; rows need {ndim} or more dimensions.",
                key=name,
                found=shape,
            )
        if (sizes := list(column.shape[:ndim])) != leading:
            break
    return WrongRows(
        f"{form.names[0]} has {_shown(leading)} rows and {name} has {_shown(sizes)}: expected the "
        "same number.",
        key=name,
        expected=leading,
        found=sizes,
    )


def _shown(sizes: list[int]) -> str:
    return str(sizes[0] if len(sizes) == 1 else sizes)


RowType = tuple[torch.dtype | str, torch.Size]
"""What a row of a column is: its element type, where it is a tensor, and its shape."""


@dataclass(frozen=True)
class RowsForm:
    """What it takes to keep rows as flat columns, and to read these as rows."""

    form: Form
    grid: tuple[int, ...]
    row_types: list[RowType]

    @classmethod
    def of_first(
        cls, form: Form, columns: Sequence[LeafColumn], ndim: int, max_size: int
    ) -> RowsForm:
        """Return what the rows of a storage are, of which these columns are the first."""
        side = _side_of(columns[0], ndim)
        steps = -(-max_size // max(1, math.prod(side)))  # rounded up to whole steps
        return cls(form, (steps, *side), row_types_of(columns, ndim))

    @property
    def is_tensordict(self) -> bool:
        """Whether rows are TensorDicts or tensorclasses."""
        return isinstance(self.form, TensorDictForm)

    @property
    def leaves(self) -> tuple[Key, ...]:
        """The keys of all columns; none where rows are not TensorDicts."""
        return self.form.leaves if isinstance(self.form, TensorDictForm) else ()

    @property
    def tensor_types(self) -> list[tuple[torch.dtype, torch.Size]]:
        """What a row of each column is, of those that are tensors."""
        return [(dtype, size) for dtype, size in self.row_types if isinstance(dtype, torch.dtype)]

    @cached_property
    def has_values(self) -> bool:
        """Whether there are columns of what is not a tensor, which come last."""
        return len(self.tensor_types) < len(self.row_types)

    @cached_property
    def is_as_kept(self) -> bool:
        """Whether kept columns are those of rows: none has values, or types kept as bits."""
        # torch cannot move some types, so that their columns are kept as bits.
        return MOVABLE.issuperset(dtype for dtype, _ in self.row_types)

    @cached_property
    def width(self) -> int:
        """Rows of one time step."""
        return math.prod(self.grid[1:])

    @cached_property
    def capacity(self) -> int:
        """Rows that fit."""
        return math.prod(self.grid)

    def check(self, columns: Sequence[LeafColumn]) -> None:
        """Check that columns ``[environments..., time, ...]`` are as those of these rows."""
        ndim = len(self.grid)
        leading = columns[0].shape[:ndim]
        if ndim > 1 and _side_of(columns[0], ndim) != self.grid[1:]:
            raise self._other_columns(columns)
        for column, (dtype, size) in zip(columns, self.row_types, strict=True):
            shape = column.shape
            if shape[:ndim] != leading or column.dtype != dtype or shape[ndim:] != size:
                raise self._other_columns(columns)

    def _other_columns(self, columns: Sequence[LeafColumn]) -> WrongRows:
        """Return the error of the first column that differs."""
        ndim = len(self.grid)
        leading = columns[0].shape[:ndim]
        if len(leading) < ndim or any(column.shape[:ndim] != leading for column in columns):
            return _other_leading(self.form, columns, ndim)
        if (side := _side_of(columns[0], ndim)) != self.grid[1:]:
            expected, found = _environments(self.grid[1:]), _environments(side)
            return WrongRows(
                f"Steps of {found} environments do not fit a storage with steps of {expected}.",
                expected=expected,
                found=found,
            )
        names = zip(self.form.names, self.row_types, row_types_of(columns, ndim), strict=True)
        name, own, other = next(each for each in names if each[1] != each[2])
        return _other_type(name, own, other)

    def as_kept(self, columns: Sequence[LeafColumn], device: torch.device) -> list[LeafColumn]:
        """Return columns in the form that is written: flat, time first, on the storage's device."""
        # Of types that torch cannot move, they are the bits. A copy to another device may fail: it
        # must not when half of the leaves are written.
        time = len(self.grid) - 1
        kept = columns if self.is_as_kept else [as_bits(column) for column in columns]
        if time:
            kept = [column.transpose(0, time).flatten(0, time) for column in kept]
        return [
            column.detach().to(device) if isinstance(column, torch.Tensor) else column
            for column in kept
        ]

    def unflatten(self, columns: Sequence[Rows]) -> Rows:
        """Return kept columns ``[n, ...]`` as rows; of TensorDicts the nested dict."""
        return self.form.unflatten(
            [
                column.view(dtype) if isinstance(dtype, torch.dtype) else column.as_entry()
                for column, (dtype, _) in zip(columns, self.row_types, strict=True)
            ]
        )

    def batch(self, tree: Tree, shape: torch.Size, device: torch.device) -> Rows:
        """Return the nested dict of rows ``[*shape]`` as TensorDicts or tensorclasses."""
        # Nested ones have the batch sizes and classes that were written.
        form = self.form
        assert isinstance(form, TensorDictForm)
        if form.is_plain:
            return make_batch(tree, shape, device)
        return form.batch(tree, shape, device)


class RowColumns:
    """Rows as flat columns ``[capacity, ...]``: a batch is one copy of rows a column."""

    def __init__(self, form: RowsForm, columns: Sequence[LeafColumn]) -> None:
        self.form = form
        self.columns = list(columns)

    def gather(self, index: torch.Tensor) -> Rows:
        """Return copies ``[B, ...]`` of the rows ``index`` int64 ``[B]``, on their device."""
        # A nested dict where rows are TensorDicts.
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
        form = self.form
        return form.form.unflatten(columns) if form.is_as_kept else form.unflatten(columns)

    def write(self, rows: slice | torch.Tensor, columns: Sequence[Rows]) -> None:
        """Put columns ``[n, ...]``, as the form keeps them, into rows."""
        for own, new in zip(self.columns, columns, strict=True):
            own[rows] = new

    def clear_values(self) -> None:
        """Let go of all values."""
        self.columns = [
            ValueColumn.empty(column.shape) if isinstance(column, ValueColumn) else column
            for column in self.columns
        ]

    def by_environment(self, num_rows: int) -> tuple[Rows, torch.Size]:
        """Return copies of the first rows ``[environments..., time, ...]``, and their shape."""
        # A nested dict where rows are TensorDicts.
        # By column: reshaped in a TensorDict, values that are not tensors get lost.
        side = self.form.grid[1:]
        time, steps = len(side), num_rows // self.form.width
        columns = [
            column[:num_rows].reshape(steps, *side, *column.shape[1:]).transpose(0, time).clone()
            for column in self.columns
        ]
        shape = torch.empty(steps, *side, device="meta").transpose(0, time).shape
        return self.form.unflatten(columns), shape

    def has(self, key: Key) -> bool:
        """Return whether there is a tensor of this key."""
        return isinstance(self.form.form, TensorDictForm) and key in self.form.form.keys

    def leaf(self, key: Key, num_rows: int) -> torch.Tensor:
        """Return the first rows of a column ``[num_rows, ...]``: not a copy."""
        if self.has(key):
            number = self.form.leaves.index(key)
            rows: Rows = self.columns[number][:num_rows]
            leaf: torch.Tensor = rows.view(self.form.row_types[number][0])
            return leaf
        names = ", ".join(self.form.form.names)
        raise UnknownKey(f"The storage has no {show_key(key)}. It has: {names}", key=key)

    def numbers(self, key: Key, num_rows: int) -> torch.Tensor:
        """Return a column of one number a row, ``[T, W]``: T steps of W environments."""
        column = self.leaf(key, num_rows)
        if column.numel() != num_rows:
            raise WrongRows(
                f"{show_key(key)} is {tuple(column.shape[1:])} a row; trajectories need one "
                "number.",
                key=key,
                found=tuple(column.shape[1:]),
            )
        return column.reshape(-1, self.form.width)

    def snapshot(self, num_rows: int) -> RowsSnapshot:
        """Return the first rows as what can be pickled."""
        rows = [column[:num_rows] for column in self.columns]
        columns = [
            column.clone() if isinstance(column, ValueColumn) else TensorBytes.of(column)
            for column in rows
        ]
        return RowsSnapshot(self.form, columns)


@dataclass(frozen=True)
class RowsSnapshot:
    """Rows on their way to a copy, perhaps in another process."""

    form: RowsForm
    columns: list[TensorBytes | ValueColumn]

    def restored(self, device: torch.device) -> RowColumns:
        """Return new columns with these rows."""
        rows = new_columns(self.form, device)
        columns = [
            column.restored() if isinstance(column, TensorBytes) else column
            for column in self.columns
        ]
        rows.write(slice(0, len(columns[0])), columns)
        return rows


def new_columns(
    form: RowsForm, device: torch.device, tensors: Sequence[torch.Tensor] = ()
) -> RowColumns:
    """Return columns with room for rows, on a device; the first are ``tensors``."""
    types = form.row_types[len(tensors) :]
    added = [_empty_column(row_type, form.capacity, device) for row_type in types]
    return RowColumns(form, [*tensors, *added])


def _empty_column(row_type: RowType, capacity: int, device: torch.device) -> LeafColumn:
    dtype, size = row_type
    if isinstance(dtype, str):
        return ValueColumn.empty((capacity, *size))
    return torch.empty((capacity, *size), dtype=bits_dtype(dtype), device=device)


def row_types_of(columns: Sequence[LeafColumn], ndim: int) -> list[RowType]:
    """Return what a row of each column is."""
    return [(column.dtype, torch.Size(column.shape[ndim:])) for column in columns]


def _side_of(column: LeafColumn, ndim: int) -> tuple[int, ...]:
    """Return the environments of a column ``[environments..., time, ...]``, as in a grid."""
    return tuple(column.transpose(0, ndim - 1).shape[1:ndim])


def _other_type(name: str, own: RowType, other: RowType) -> WrongRows:
    """Return the error of a column with another dtype or shape than that of the storage."""
    if other[0] != own[0]:
        return WrongRows(
            f"{name} is {own[0]} in the storage and {other[0]} in these rows.",
            key=name,
            expected=own[0],
            found=other[0],
            advice=f"Pass {name} as {own[0]}, such as by .to({own[0]}).",
        )
    return WrongRows(
        f"{name} has the shape {list(own[1])} a row in the storage, and {list(other[1])} in these "
        "rows.",
        key=name,
        expected=list(own[1]),
        found=list(other[1]),
        advice="Reshape them, or write them to another storage.",
    )


def _environments(side: Sequence[int]) -> str:
    """Return how many environments there are, as data come: the last of a step's sizes first."""
    return " x ".join(map(str, (*side[-1:], *side[:-1])))
