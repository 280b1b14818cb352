"""The form of rows: which columns they have, and how a batch is put together from them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

import torch
from tensordict import (
    NonTensorData,
    TensorDictBase,
    is_non_tensor,
    is_tensor_collection,
    is_tensorclass,
)
from torch.utils import _pytree

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import Rows, StateDict
from datasets_cli.replay.storages.batches import LeafColumn, ValueColumn, make_batch
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
        raise UsageError(
            f"{show_key(above) or 'These rows'} cannot be one tensor each: {error} Rows of unequal "
            "shapes are kept by ListStorage and LazyStackStorage."
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


def no_tensor(name: str, item: object) -> UsageError:
    """Return the error of an entry that is not a tensor."""
    return UsageError(
        f"{name} is not a tensor but {type(item).__name__}. Tensor storages take tensors; "
        "ListStorage takes anything."
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

    def extended(self, other: TensorDictForm) -> TensorDictForm:
        """Return this form with the leaves that another one has beside its own."""
        keys = [key for key in other.keys if key not in self.keys]
        values = [key for key in other.values if key not in self.values]
        nodes = other.nodes | self.nodes
        return TensorDictForm((*self.keys, *keys), (*self.values, *values), nodes)

    def flatten(self, rows: Rows) -> list[LeafColumn]:
        """Return the leaves in the order of the keys, those that are not tensors after the
        others.
        """
        if not is_tensor_collection(rows):
            raise UsageError(
                f"The buffer holds TensorDicts with {', '.join(self.names)}, not {outline(rows)}."
            )
        leaves = leaves_of(rows)
        if leaves.keys() != set(self.leaves):
            raise UsageError(
                f"The buffer holds rows with {', '.join(self.names)}; these have "
                f"{', '.join(map(show_key, leaves)) or 'nothing'}. Rows must have the same keys."
            )
        for key in self.values:
            if isinstance(leaves[key], torch.Tensor):
                raise UsageError(
                    f"{show_key(key)} is text or another value in the storage, and a tensor in "
                    "these rows. Write it as what it was, or to another storage."
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
            raise UsageError(
                f"The buffer holds rows of the form {self._outline}, not {outline(rows)}."
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
        raise UsageError("These rows have no tensor: there is nothing to store.")
    leading = columns[0].shape[:ndim]
    if len(leading) == ndim and all(column.shape[:ndim] == leading for column in columns):
        return
    for name, column in zip(form.names, columns, strict=True):
        if column.ndim < ndim:
            shape = list(column.shape)
            raise UsageError(f"{name} has the shape {shape}; rows need {ndim} or more dimensions.")
        one, other = (
            size[0] if ndim == 1 else list(size) for size in (leading, column.shape[:ndim])
        )
        if one != other:
            raise UsageError(
                f"{form.names[0]} has {one} rows and {name} has {other}: expected the same number."
            )
