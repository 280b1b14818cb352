"""Rows as plain values: what ``torch.load`` takes without running anything.

    tensors, text, bytes, numbers, bool, None     as they are
    lists, tuples                                 of such
    dict                  {"kind": "dict", "entries": {...}}
    TensorDict            {"kind": "tensordict", "batch_size": [...], "entries": {...}}
    lazy stack            {"kind": "stack", "dim": 0, "items": [...]}
    a value in these      {"kind": "value", "batch_size": [...], "value": ...}
    values in these       {"kind": "values", "dim": 0, "items": [...]}

A tensorclass becomes a TensorDict.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

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
from datasets_cli.replay.encoding.json_values import ALLOWED, SCALARS, plain_scalar
from datasets_cli.replay.encoding.write_folder import as_tensordict

DICTS: dict[type, str] = {dict: "dict", OrderedDict: "ordered"}


def to_plain(rows: Rows, name: str = "rows") -> Any:
    """Return rows as plain values."""
    rows = plain_scalar(rows)
    kind = type(rows)
    if isinstance(rows, torch.Tensor):
        return rows.detach().as_subclass(torch.Tensor)
    if kind in SCALARS:
        return rows
    if kind in (list, tuple):
        return kind(to_plain(item, f"{name}[{number}]") for number, item in enumerate(rows))
    if kind in DICTS and all(type(key) in SCALARS for key in rows):
        return {"kind": DICTS[kind], "entries": _entries(rows, name)}
    if isinstance(rows, TensorDictBase) or is_tensorclass(rows):
        return _tensordict_to_plain(rows, name)
    raise UsageError(
        f"The state of this buffer cannot be saved: {name} is {kind.__module__}.{kind.__qualname__}"
        f". Expected a TensorDict, a tensor, {ALLOWED}. Write such rows, or keep the rows by other "
        "means."
    )


def _tensordict_to_plain(rows: Any, name: str) -> dict[str, Any]:
    """Return a TensorDict, or a value in one, as plain values."""
    if isinstance(rows, NonTensorData):
        value = to_plain(rows.data, name)
        return {"kind": "value", "batch_size": list(rows.batch_size), "value": value}
    several = "values" if isinstance(rows, NonTensorStack) else "stack"
    found = as_tensordict(rows) if several == "stack" else rows
    if isinstance(found, LazyStackedTensorDict):
        parts = enumerate(found.unbind(found.stack_dim))
        items = [to_plain(item, f"{name}[{number}]") for number, item in parts]
        return {"kind": several, "dim": found.stack_dim, "items": items}
    entries, size = _entries(found, name), list(found.batch_size)
    return {"kind": "tensordict", "batch_size": size, "entries": entries}


def from_plain(plain: Any) -> Rows:
    """Return the rows that ``to_plain`` made plain."""
    if isinstance(plain, list | tuple):
        return type(plain)(from_plain(item) for item in plain)
    return _KINDS[plain["kind"]](plain) if isinstance(plain, dict) else plain


def _entries(rows: Any, name: str) -> dict[Any, Any]:
    return {key: to_plain(item, f"{name}[{key!r}]") for key, item in rows.items()}


def _rows_of(plain: dict[str, Any]) -> dict[Any, Rows]:
    return {key: from_plain(item) for key, item in plain["entries"].items()}


def _items_of(plain: dict[str, Any]) -> list[Rows]:
    return [from_plain(item) for item in plain["items"]]


_KINDS: dict[str, Callable[[dict[str, Any]], Rows]] = {
    "dict": _rows_of,
    "ordered": lambda plain: OrderedDict(_rows_of(plain)),
    "tensordict": lambda plain: TensorDict(_rows_of(plain), plain["batch_size"]),
    "stack": lambda plain: LazyStackedTensorDict(*_items_of(plain), stack_dim=plain["dim"]),
    "value": lambda plain: NonTensorData(from_plain(plain["value"]), plain["batch_size"]),
    "values": lambda plain: NonTensorStack(*_items_of(plain), stack_dim=plain["dim"]),
}
