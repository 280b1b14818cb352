"""Values, and rows of any structure, as JSON. Types that JSON lacks are tagged.

str, 64-bit integers, finite numbers, bool, None, lists, dicts      unchanged
bytes                 {"__rlds__": ["bytes", "aGk="]}               base64
NaN and infinities    {"__rlds__": ["float", "nan"]}
larger integers       {"__rlds__": ["int", "0x1..."]}
tuples                {"__rlds__": ["tuple", [...]]}
other dicts           {"__rlds__": ["dict", [[key, value], ...]]}   a key is not a str

States, dumps and pickles of lists store rows in the same form. Their tensors are stored beside it,
as columns. A tensorclass becomes a TensorDict:

a tensor              {"__rlds__": ["tensor", 3]}                   column 3
ordered dicts         {"__rlds__": ["OrderedDict", [[key, value], ...]]}
TensorDicts           {"__rlds__": ["TensorDict", [[4], [[name, value], ...]]]}   and batch size
non-tensor values     {"__rlds__": ["NonTensorData", [[4], value]]}
stacks of these       {"__rlds__": ["NonTensorStack", [0, [...]]]}  or LazyStackedTensorDict
rows of a list        {"__rlds__": ["rows", [[5000, 3, row], ...]]} 5,000 equal ones, of 3 columns
"""

from __future__ import annotations

import base64
import marshal
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

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

from datasets_cli.errors import WrongRows, WrongSize
from datasets_cli.replay.arguments import Rows
from datasets_cli.replay.storages.collate import as_tensordict
from datasets_cli.schema.bits import TYPE_NAMES

RowsJson = dict[str, "RowsJson"] | list["RowsJson"] | str | int | float | None
"""A value, or rows, as JSON."""

_Columns = dict[int, torch.Tensor]  # columns by number; decoding a row removes its own

TAG = "__rlds__"
SCALARS = ("str", "bytes", "int", "float", "bool", "NoneType")
TENSORS = ("tensor", "list", "tuple", "dict", "OrderedDict")
VALUES = (*SCALARS, "list", "tuple", "dict")
_ROWS = (
    *(*VALUES, "tensor", "OrderedDict", "TensorDict"),
    *("NonTensorData", "NonTensorStack", "LazyStackedTensorDict"),
)
_NAMED = {str, bytes, int, float, bool, type(None), list, tuple, dict, OrderedDict}
_NAMED |= {NonTensorData, NonTensorStack}
_ALLOWED = "str, bytes, int, float, bool, None, and lists, tuples and dicts of these"
_EXPECTED = {
    VALUES: f"a tensor, {_ALLOWED}",
    TENSORS: "TensorDicts, or tensors in lists, tuples and dicts",
    _ROWS: f"a TensorDict, a tensor, {_ALLOWED}",
}

MOST_DEPTH = 100
"""Maximum nesting below the first level, of JSON and of the folders of a TensorDict."""

_MOST_LEVELS = MOST_DEPTH // 4 - 1  # a level of rows is up to four of JSON, and so is the last tag


def value_of(description: RowsJson) -> object:
    """Return the value that was described; it contains no tensors."""
    return _decoded(description, None)


def describe(
    rows: Rows, *, kinds: tuple[str, ...] = _ROWS, only_exact: bool = False
) -> tuple[RowsJson, list[torch.Tensor]]:
    """Return the description of rows, and their tensors, which share memory with the rows."""
    # kinds: the types that are accepted.
    # only_exact: reject values that `restore` would return in another form.
    encoder = _Encoder(kinds, only_exact)
    is_list = kinds is _ROWS and type(rows) is list
    described = encoder.encode_rows(rows) if is_list else encoder.encode(rows, "rows")
    return described, encoder.columns


def restore(description: RowsJson, columns: Sequence[torch.Tensor]) -> Rows:
    """Return the rows that were described; ValueError unless each column is used once."""
    unused = dict(enumerate(columns))
    if not all(map(torch.is_tensor, columns)):
        raise ValueError("a column is not a tensor")
    try:
        rows = _decoded(description, unused)
    except (ValueError, TypeError, LookupError, AttributeError, RuntimeError) as error:
        raise ValueError(f"the description is damaged: {error!r}") from error
    if unused:
        raise ValueError(f"no row has the columns {', '.join(map(str, unused))}")
    return rows


class _Encoder:
    """Encodes values as JSON, and collects their tensors as columns."""

    def __init__(self, kinds: tuple[str, ...], only_exact: bool = False) -> None:
        self.columns: list[torch.Tensor] = []
        self._kinds = kinds
        self._only_exact = only_exact

    def encode(self, value: Rows, name: str, level: int = 0) -> RowsJson:
        plain = _plain(value)
        kind = _kind_of(plain)
        if kind not in self._kinds or (self._only_exact and not _comes_back(value, kind)):
            raise self._not_supported(name, value)
        if kind == "tensor":
            is_plain = type(value) is torch.Tensor and not value.requires_grad
            self.columns.append(value if is_plain else value.detach().as_subclass(torch.Tensor))
            return _tagged(kind, len(self.columns) - 1)
        if kind in SCALARS:
            return _scalar(plain)
        if level == _MOST_LEVELS:
            raise WrongSize(
                f"{name} is nested in more than {_MOST_LEVELS} levels; use fewer.",
                key=name,
                expected=f"{_MOST_LEVELS} levels at most",
            )
        content = self._parts(kind, value, name, level + 1)
        return content if kind == "list" or isinstance(content, dict) else _tagged(kind, content)

    def encode_rows(self, rows: list[Rows]) -> RowsJson:
        """Encode a list of rows; successive rows with equal descriptions share one."""
        runs: list[RowsJson] = []
        known, count = b"", 0
        for number, row in enumerate(rows):
            own = _Encoder(self._kinds, self._only_exact)
            node = own.encode(row, f"rows[{number}]", 1)
            self.columns += own.columns
            before, known = known, marshal.dumps(node, 2)  # 1, True and 1.0 differ in it
            count = count + 1 if known == before and own.columns else 1
            runs[-1 if count > 1 else len(runs) :] = [[count, len(own.columns), node]]
        return _tagged("rows", runs)

    def _not_supported(self, name: str, value: object) -> WrongRows:
        kind = type(value)
        return WrongRows(
            f"{name} is {kind.__module__}.{kind.__qualname__}, which a file or a state cannot "
            f"contain. Expected {_EXPECTED[self._kinds]}.",
            key=name,
            expected=self._kinds,
            found=kind.__qualname__,
            advice="Convert it, or leave it out of the rows.",
        )

    def _parts(self, kind: str, value: Rows, name: str, level: int) -> RowsJson:
        if kind in ("list", "tuple"):
            return self._items(value, name, level)
        if kind == "dict" and TAG not in value and all(type(key) is str for key in value):
            return {key: self.encode(v, f"{name}[{key!r}]", level) for key, v in value.items()}
        if kind in ("dict", "OrderedDict"):
            return self._pairs(value, name, level)
        if kind == "NonTensorData":
            return [list(value.batch_size), self.encode(value.data, name, level)]
        rows = value if kind == "NonTensorStack" else as_tensordict(value)
        if kind == "TensorDict":
            return [list(rows.batch_size), self._pairs(rows, name, level)]
        return [rows.stack_dim, self._items(rows.unbind(rows.stack_dim), name, level)]

    def _items(self, items: Iterable[Rows], name: str, level: int) -> list[RowsJson]:
        return [self.encode(item, f"{name}[{n}]", level) for n, item in enumerate(items)]

    def _pairs(self, rows: Rows, name: str, level: int) -> list[RowsJson]:
        # A key cannot contain a tensor, even where rows can.
        keys = _Encoder(VALUES)
        return [
            [keys.encode(key, name, level), self.encode(v, f"{name}[{key!r}]", level)]
            for key, v in rows.items()
        ]


def _plain(value: object) -> object:
    """Convert a numpy scalar to Python's type; return any other value unchanged."""
    if isinstance(value, np.generic) and type(scalar := value.item()).__name__ in SCALARS:
        return scalar
    return value


def _kind_of(value: object) -> str:
    """Return the name of a value's type in descriptions; "" for an unsupported type."""
    if type(value) in _NAMED:
        return type(value).__name__
    if isinstance(value, torch.Tensor):
        return "tensor"
    if isinstance(value, TensorDictBase) or is_tensorclass(value):
        return type(as_tensordict(value)).__name__
    return ""


def _comes_back(value: Rows, kind: str) -> bool:
    """Return whether ``restore`` returns a value of a supported type in the same form."""
    if kind == "tensor":
        is_plain = type(value) is torch.Tensor and not value.requires_grad and not value.is_nested
        is_dense = value.layout == torch.strided and value.dtype in TYPE_NAMES
        return is_plain and is_dense and value.device.type == "cpu"
    if isinstance(value, TensorDictBase) or is_tensorclass(value):
        return type(value).__name__ == kind and value.device is None and not any(value.names)
    return not isinstance(value, np.generic)


def _scalar(value: Rows) -> RowsJson:
    if isinstance(value, bytes):
        return _tagged("bytes", base64.b64encode(value).decode("ascii"))
    if isinstance(value, float) and not math.isfinite(value):
        return _tagged("float", repr(value))
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return _tagged("int", hex(value))
    scalar: RowsJson = value
    return scalar


def _tagged(kind: str, content: RowsJson) -> RowsJson:
    return {TAG: [kind, content]}


def _decoded(node: Rows, columns: _Columns | None) -> Rows:
    """Decode a description: of rows, or, without columns, of a value."""
    if isinstance(node, list):
        return [_decoded(item, columns) for item in node]
    if not isinstance(node, dict):
        return node
    if TAG not in node:
        return {key: _decoded(item, columns) for key, item in node.items()}
    try:
        kind, content = node[TAG]
        if columns is None and kind not in VALUES:
            raise ValueError(f"{kind!r} is not the type of a value")
        return _KINDS[kind](content, columns)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"a tag is wrong: {error}") from error


def _dict(pairs: Rows, columns: _Columns | None) -> dict[Rows, Rows]:
    return {_decoded(key, None): _decoded(item, columns) for key, item in pairs}


def _rows(runs: Rows, columns: Rows) -> list[Rows]:
    rows, first = [], 0
    for count, width, node in runs:
        # A damaged count of rows without columns could be huge; other counts end with the columns.
        for _ in range(count if width > 0 else 1):
            own = {number: columns.pop(first + number) for number in range(width)}
            rows.append(_decoded(node, own))
            columns |= own  # unused columns; `restore` rejects them
            first += width
    return rows


def _stack(kind: Rows) -> Callable[[Rows, Rows], Rows]:
    return lambda parts, columns: kind(*_decoded(parts[1], columns), stack_dim=parts[0])


_KINDS: dict[str, Callable[[Rows, Rows], Rows]] = {
    "bytes": lambda text, _: base64.b64decode(text, validate=True),
    "float": lambda text, _: float(text),
    "int": lambda digits, _: int(digits, 16),
    "tuple": lambda items, columns: tuple(_decoded(item, columns) for item in items),
    "dict": _dict,
    "tensor": lambda number, columns: columns.pop(number),
    "rows": _rows,
    "OrderedDict": lambda pairs, columns: OrderedDict(_dict(pairs, columns)),
    "TensorDict": lambda parts, columns: TensorDict(_dict(parts[1], columns), parts[0]),
    "NonTensorData": lambda parts, columns: NonTensorData(_decoded(parts[1], columns), parts[0]),
    "NonTensorStack": _stack(NonTensorStack),
    "LazyStackedTensorDict": _stack(LazyStackedTensorDict),
}


@dataclass(frozen=True)
class TensorBytes:
    """The bytes of a tensor that is sent to another process."""

    # An array, because multiprocessing shares the memory of tensors, and because the pickle of a
    # tensor contains all of the memory that it is a view of.

    dtype: torch.dtype
    shape: torch.Size
    content: np.ndarray

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorBytes:
        """Return the bytes of a tensor; they share its memory if it is contiguous."""
        return cls(tensor.dtype, tensor.shape, bytes_of(tensor.cpu()))

    def restored(self) -> torch.Tensor:
        """Return a tensor that shares memory with the bytes."""
        return torch.from_numpy(self.content).view(self.dtype).view(self.shape)


def bytes_of(column: torch.Tensor) -> np.ndarray:
    """Return the bytes of a column on the CPU, contiguous, uint8 ``[n]``."""
    return column.resolve_conj().resolve_neg().reshape(-1).view(torch.uint8).numpy()
