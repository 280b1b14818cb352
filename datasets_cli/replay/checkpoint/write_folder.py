"""Writing a TensorDict into a folder, in the format of tensordict's memory-mapped folders.

Files are planned first, so that what cannot be written is refused before anything is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from tensordict import (
    LazyStackedTensorDict,
    NonTensorData,
    NonTensorStack,
    TensorDictBase,
    is_tensorclass,
)

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import Rows, StateDict
from datasets_cli.replay.storages.collate import as_tensordict
from datasets_cli.replay.storages.description import RowsJson, bytes_of, not_kept, to_json
from datasets_cli.replay.storages.state_files import MOST_BYTES
from datasets_cli.schema.bits import TYPE_NAMES
from datasets_cli.schema.columns import (
    META_FILENAME,
    MOST_DIMENSIONS,
    Key,
    encode_name,
    escape_key,
    show_key,
)

TENSORDICT = "<class 'tensordict._td.TensorDict'>"
LAZY_STACK = "<class 'tensordict._lazy.LazyStackedTensorDict'>"
VALUE = "<class 'tensordict.tensorclass.NonTensorData'>"
VALUES = "<class 'tensordict.tensorclass.NonTensorStack'>"

TensorClass = Any
"""The class of a tensorclass, or None."""

Planned = tuple[str, StateDict | torch.Tensor]
"""A file: its path below the folder, and the JSON or the tensor that it will hold."""


DTYPES: dict[str, torch.dtype] = {f"torch.{name}": dtype for dtype, name in TYPE_NAMES.items()}
"""Element types by their name in ``meta.json``; those that this version of torch has."""


def plan_files(rows: Rows, key: Key = (), folder: str = "") -> Iterator[Planned]:
    """Yield the files of a TensorDict."""
    rows = as_tensordict(rows)
    if isinstance(rows, LazyStackedTensorDict):
        members = rows.unbind(rows.stack_dim)
        stack = {"_type": LAZY_STACK, "stack_dim": rows.stack_dim, "len": len(members)}
        yield folder + META_FILENAME, stack
        for number, member in enumerate(members):
            yield from plan_files(member, (*key, str(number)), f"{folder}{number}/")
        return
    level: StateDict = {}
    for name, item in rows.items():
        below = (*key, name)
        stored = stored_name(name, len(key), not isinstance(item, torch.Tensor))
        path = folder + file_name(stored)
        if isinstance(item, torch.Tensor):
            _check_leaf(show_key(below), item)
            level[stored] = _leaf_json(item)
            yield f"{path}.memmap", item
            continue
        level[stored] = {"type": type(item).__name__}
        if isinstance(item, NonTensorData | NonTensorStack):
            yield f"{path}/{META_FILENAME}", _values_json(item, show_key(below))
        elif isinstance(item, TensorDictBase) or is_tensorclass(item):
            level[stored] = {"type": type(as_tensordict(item)).__name__}
            yield from plan_files(item, below, f"{path}/")
        else:
            raise not_kept(show_key(below), item)
    level |= {"shape": list(rows.batch_size), "device": "cpu", "_type": TENSORDICT}
    yield folder + META_FILENAME, level


def _check_leaf(name: str, rows: torch.Tensor) -> None:
    """Check that a tensor can be written."""
    if rows.ndim > MOST_DIMENSIONS:
        raise UsageError(
            f"{name} has {rows.ndim} dimensions; expected at most {MOST_DIMENSIONS}. Reshape it."
        )
    if str(rows.dtype) not in DTYPES or rows.layout != torch.strided or rows.is_nested:
        raise UsageError(
            f"{name} is a tensor of {rows.dtype}, {rows.layout}, which cannot be kept in a file. "
            "Expected a dense tensor of numbers or bool. Convert it, or leave it out of the rows."
        )


def _leaf_json(rows: torch.Tensor) -> StateDict:
    """Return the entry of ``meta.json`` that describes a tensor."""
    shape = list(rows.shape)
    return {"device": "cpu", "shape": shape, "dtype": str(rows.dtype), "is_nested": False}


def write_files(folder: Path, files: list[Planned]) -> None:
    """Write files that were planned into a folder, which is made."""
    for name, content in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, torch.Tensor):
            if content.numel():  # one without elements has no file
                plain = content.detach().as_subclass(torch.Tensor).cpu()
                path.write_bytes(bytes_of(plain).data)  # `tofile` tells no full disk
            continue
        text = json.dumps(content, separators=(",", ":"))
        if len(text) > MOST_BYTES:
            raise UsageError(
                f"{name} would have {len(text):,} bytes of values that are not tensors, more than "
                f"the {MOST_BYTES:,} that are read again. Dump fewer rows."
            )
        path.write_text(text, encoding="ascii")


def as_class(rows: Rows, tensorclass: TensorClass) -> Rows:
    """Return rows of TensorDicts as a tensorclass; unchanged where that is None."""
    if tensorclass is None:
        return rows
    try:
        return tensorclass.from_tensordict(rows)
    except (AttributeError, TypeError, ValueError, KeyError, RuntimeError) as error:
        raise UsageError(
            f"The rows with {', '.join(map(str, rows.keys()))} cannot be made "
            f"{getattr(tensorclass, '__name__', tensorclass)!r}: {error}. Pass the tensorclass "
            "that was dumped, or none, for TensorDicts."
        ) from error


def _values_json(item: NonTensorData | NonTensorStack, name: str) -> StateDict:
    """Return the ``meta.json`` of values, one for all rows or one for each."""
    if isinstance(item, NonTensorData):
        data = to_json(item.data, name)
        return {"_type": VALUE, "data": data, "_is_non_tensor": True, "_metadata": None}
    shape = list(item.batch_size)  # tensordict cannot tell values that are lists from dimensions
    data = _nested(item, name)
    return {"_type": VALUES, "stack_dim": 0, "device": None, "data": data, "batch_size": shape}


def _nested(item: NonTensorData | NonTensorStack, name: str) -> RowsJson:
    """Return values as JSON, in lists of lists as the batch has dimensions."""
    if not item.batch_size:
        return to_json(item.data, name)
    parts = enumerate(item.unbind(0))
    return [_nested(part, f"{name}[{number}]") for number, part in parts]


def stored_name(name: str, depth: int, is_folder: bool) -> str:
    """Return the name under which an entry is stored, which no other entry of its level has."""
    # A name that tensordict keeps for itself, or that a file could have, gets one `~` more.
    key = (*[""] * depth, name, *([""] if is_folder else []))
    return escape_key(key)[depth]


def entry_name(stored: str, depth: int, is_folder: bool) -> str:
    """Return the name of an entry that ``stored_name`` gave another one."""
    name = stored.removesuffix("~")
    return name if stored_name(name, depth, is_folder) == stored else stored


def file_name(stored: str) -> str:
    """Return the file name of a stored name, percent-encoded as tensordict does."""
    return encode_name(stored) or "%"
