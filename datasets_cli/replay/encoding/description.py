"""Rows of any structure taken apart: a description, which is JSON, and columns, which are tensors.

States, pickles of lists, dumps of rows that are no TensorDicts, and processes that share rows have
rows in this form:

    3                                               the column of that number
    {"value": 1.5}                                  a value that is no tensor; see ``json_values``
    {"list": [...]}, {"tuple": [...]}               of such
    {"dict": [[key, ...], ...]}, {"OrderedDict": [...]}
    {"TensorDict": [[4], [[name, ...], ...]]}       its batch size, and its entries
    {"NonTensorData": [[4], ...]}                   its batch size, and its value
    {"NonTensorStack": [0, [...]]}, {"LazyStackedTensorDict": [0, [...]]}

A tensorclass becomes a TensorDict.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tensordict import (
    LazyStackedTensorDict,
    NonTensorData,
    NonTensorStack,
    TensorDict,
    TensorDictBase,
    is_tensorclass,
)

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import Rows
from datasets_cli.replay.encoding.form import Form, TensorDictForm, form_of, inner_shape
from datasets_cli.replay.encoding.json_files import MOST_DEPTH
from datasets_cli.replay.encoding.json_values import (
    ALLOWED,
    SCALARS,
    from_json,
    plain_scalar,
    to_json,
)
from datasets_cli.replay.encoding.row_columns import bytes_of
from datasets_cli.replay.encoding.rows_form import RowsForm, RowType
from datasets_cli.replay.encoding.write_folder import as_tensordict
from datasets_cli.schema.bits import TYPE_NAMES, torch_dtype, type_name

Description = Any
"""What rows are, as JSON."""

_MOST_LEVELS = MOST_DEPTH // 4  # a level of rows is up to four of JSON


def describe(
    rows: Rows, *, only_tensors: bool = False, only_exact: bool = False
) -> tuple[Description, list[torch.Tensor]]:
    """Return what rows are, and their tensors, which share memory with the rows.

    ``only_tensors`` refuses all but tensors in lists, tuples and dicts; ``only_exact`` what would
    come back as something else.
    """
    taken = _Taken(only_tensors, only_exact)
    return taken.apart(rows, "rows", 0), taken.columns


def restore(description: Description, columns: Sequence[torch.Tensor]) -> Rows:
    """Return the rows that were described; ValueError where these are not all their columns."""
    left = dict(enumerate(columns))
    if not all(isinstance(column, torch.Tensor) for column in columns):
        raise ValueError("a column is no tensor")
    try:
        rows = _restored(description, left)
    except (ValueError, TypeError, LookupError, AttributeError, RuntimeError) as error:
        raise ValueError(f"they are described wrongly: {error!r}") from error
    if left:
        raise ValueError(f"no row has the columns {', '.join(map(str, left))}")
    return rows


class _Taken:
    """Rows that are being taken apart."""

    def __init__(self, only_tensors: bool, only_exact: bool) -> None:
        self.columns: list[torch.Tensor] = []
        self._only_tensors = only_tensors
        self._only_exact = only_exact

    def apart(self, rows: Rows, name: str, level: int) -> Description:
        """Return the description of rows, or of a part of them."""
        kind = _kind_of(rows)
        is_other = self._only_tensors and kind not in ("tensor", "list", "tuple", "dict")
        if not kind or is_other or (self._only_exact and not _comes_back(rows)):
            raise self._other(rows, name)
        if kind == "tensor":
            is_plain = type(rows) is torch.Tensor and not rows.requires_grad
            self.columns.append(rows if is_plain else rows.detach().as_subclass(torch.Tensor))
            return len(self.columns) - 1
        if kind == "value":
            return {kind: to_json(rows, name)}
        if level == _MOST_LEVELS:
            raise UsageError(f"{name} is nested in more than {_MOST_LEVELS} levels; use fewer.")
        return {kind: self._parts(kind, rows, name, level + 1)}

    def _parts(self, kind: str, rows: Rows, name: str, level: int) -> Description:
        if kind in ("list", "tuple"):
            return self._items(rows, name, level)
        if kind in ("dict", "OrderedDict"):
            return self._pairs(rows, name, level)
        if kind == "NonTensorData":
            return [list(rows.batch_size), self.apart(rows.data, name, level)]
        found = rows if kind == "NonTensorStack" else as_tensordict(rows)
        if kind == "TensorDict":
            return [list(found.batch_size), self._pairs(found, name, level)]
        return [found.stack_dim, self._items(found.unbind(found.stack_dim), name, level)]

    def _items(self, rows: Sequence[Rows], name: str, level: int) -> list[Description]:
        return [self.apart(row, f"{name}[{n}]", level) for n, row in enumerate(rows)]

    def _pairs(self, rows: Any, name: str, level: int) -> list[list[Description]]:
        pairs = rows.items()
        return [[to_json(k, name), self.apart(v, f"{name}[{k!r}]", level)] for k, v in pairs]

    def _other(self, rows: Rows, name: str) -> UsageError:
        expected = f"a TensorDict, a tensor, {ALLOWED}"
        if self._only_tensors:
            expected = "TensorDicts, or tensors in lists, tuples and dicts"
        return UsageError(
            f"These rows cannot be kept: {name} is {type(rows).__module__}."
            f"{type(rows).__qualname__}. Expected {expected}. Write such rows, or keep the rows by "
            "other means."
        )


def _kind_of(rows: Rows) -> str:
    """Return what a description calls rows; "" for what it has no word for."""
    kind = type(rows)
    if isinstance(rows, torch.Tensor):
        return "tensor"
    if type(plain_scalar(rows)) in SCALARS:
        return "value"
    is_dict = kind in (dict, OrderedDict) and all(type(key) in SCALARS for key in rows)
    if is_dict or kind in (list, tuple, NonTensorData, NonTensorStack):
        return kind.__name__
    if isinstance(rows, TensorDictBase) or is_tensorclass(rows):
        return type(as_tensordict(rows)).__name__
    return ""


def _comes_back(rows: Rows) -> bool:
    """Return whether ``restore`` makes the same of a part, which is of a kind that it knows."""
    if isinstance(rows, torch.Tensor):
        is_plain = type(rows) is torch.Tensor and not rows.requires_grad and not rows.is_nested
        is_dense = rows.layout == torch.strided and rows.dtype in TYPE_NAMES
        return is_plain and is_dense and rows.device.type == "cpu"
    if isinstance(rows, TensorDictBase) or is_tensorclass(rows):
        is_known = type(rows).__name__ == _kind_of(rows) and rows.device is None
        return is_known and not any(rows.names)
    return not isinstance(rows, np.generic)


def _restored(node: Description, left: dict[int, torch.Tensor]) -> Rows:
    if type(node) is int:
        return left.pop(node)
    [(kind, content)] = node.items()
    return _KINDS[kind](content, left)


def _dict(pairs: Description, left: dict[int, torch.Tensor]) -> dict[Any, Rows]:
    return {from_json(key): _restored(item, left) for key, item in pairs}


def _list(items: Description, left: dict[int, torch.Tensor]) -> list[Rows]:
    return [_restored(item, left) for item in items]


_KINDS: dict[str, Callable[[Description, dict[int, torch.Tensor]], Rows]] = {
    "value": lambda value, left: from_json(value),
    "list": _list,
    "tuple": lambda items, left: tuple(_list(items, left)),
    "dict": _dict,
    "OrderedDict": lambda pairs, left: OrderedDict(_dict(pairs, left)),
    "TensorDict": lambda parts, left: TensorDict(_dict(parts[1], left), parts[0]),
    "NonTensorData": lambda parts, left: NonTensorData(_restored(parts[1], left), parts[0]),
    "NonTensorStack": lambda parts, left: NonTensorStack(
        *_list(parts[1], left), stack_dim=parts[0]
    ),
    "LazyStackedTensorDict": lambda parts, left: LazyStackedTensorDict(
        *_list(parts[1], left), stack_dim=parts[0]
    ),
}


@dataclass(frozen=True)
class PackedRows:
    """Rows on their way to another process: their description, and the bytes of each column."""

    # Arrays, because multiprocessing would share the memory of tensors, and a pickle has all of the
    # memory that a tensor is a part of.

    description: Description
    columns: list[tuple[torch.dtype, torch.Size, np.ndarray]]

    def restored(self) -> Rows:
        """Return the rows."""
        columns = [
            torch.from_numpy(content).view(dtype).view(shape)
            for dtype, shape, content in self.columns
        ]
        return restore(self.description, columns)


def pack(rows: Rows) -> PackedRows:
    """Return rows to be pickled; UsageError where they would come back as something else."""
    description, columns = describe(rows, only_exact=True)
    contents = [(column.dtype, column.shape, bytes_of(column).copy()) for column in columns]
    return PackedRows(description, contents)


def tell_form(rows: RowsForm) -> dict[str, Any] | None:
    """Return a form as JSON; None where that cannot tell it, as of classes of the user's own."""
    columns = [torch.empty((0, *size), dtype=dtype) for dtype, size in rows.tensor_types]
    if len(columns) < len(rows.row_types):
        return None  # values that are no tensors stay in one process
    none: Any = rows.form.unflatten(columns)
    if rows.is_tensordict:
        none = rows.batch(none, torch.Size([0]), torch.device("cpu"))
    try:
        description, described = describe(none)
    except UsageError:
        return None
    # A TensorDict has its entries in another order than the form has columns.
    numbers = {id(column): number for number, column in enumerate(columns)}
    order = [numbers[id(column)] for column in described]
    types = [(type_name(column.dtype), tuple(column.shape[1:])) for column in described]
    told = {"grid": rows.grid, "types": types, "order": order, "rows": description}
    return told if _content(form_told(told).form) == _content(rows.form) else None


def form_told(told: dict[str, Any] | None) -> RowsForm:
    """Return the form that ``tell_form`` told another process."""
    if told is None:
        raise UsageError(
            "Another process wrote the first rows of this storage, and they are of classes that "
            "this one cannot know of. Write the first rows before the buffer reaches other "
            "processes."
        )
    types = [(torch_dtype(dtype), torch.Size(size)) for dtype, size in told["types"]]
    none = restore(told["rows"], [torch.empty((0, *size), dtype=dtype) for dtype, size in types])
    columns = sorted(range(len(types)), key=told["order"].__getitem__)
    form = form_of(none, 1)
    if isinstance(form, TensorDictForm):
        form = TensorDictForm([form.keys[column] for column in columns], nodes=form.nodes)
    row_types: list[RowType] = [types[column] for column in columns]
    return RowsForm(form, tuple(told["grid"]), inner_shape(none, 1), row_types)


def _content(form: Form) -> dict[str, Any]:
    """Return what a form knows, but for what it works out of that."""
    return {name: value for name, value in vars(form).items() if name != "_plan"}
