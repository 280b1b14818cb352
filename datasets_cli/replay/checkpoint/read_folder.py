"""Opening a folder that tensordict, or ``write_folder``, wrote: by its content alone.

tensordict's own loader unpickles what is not a tensor, looks classes up by the name that the folder
gives, leaves a missing file out, fills a short one with zeros, and follows links. Here a level is
JSON, a leaf is a regular file that is long enough, and what is not a tensor is JSON, or refused.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Any, cast

import numpy as np
import torch
from tensordict import (
    LazyStackedTensorDict,
    NonTensorData,
    NonTensorStack,
    TensorDict,
    TensorDictBase,
)

from datasets_cli.checked_json import Check
from datasets_cli.errors import DamagedDataset, UsageError
from datasets_cli.replay.arguments import Rows, StateDict
from datasets_cli.replay.checkpoint.write_folder import (
    DTYPES,
    LAZY_STACK,
    TENSORDICT,
    VALUE,
    VALUES,
    entry_name,
    file_name,
)
from datasets_cli.replay.storages.description import from_json
from datasets_cli.replay.storages.state_files import (
    MOST_BYTES,
    MOST_DEPTH,
    check_folder,
    checked,
    open_file,
    read_state,
    whole,
    wrong,
)
from datasets_cli.schema.columns import META_FILENAME, MOST_DIMENSIONS, RESERVED_NAMES, Count
from datasets_cli.schema.mapped_bytes import map_descriptor
from datasets_cli.system_errors import check_memory

PICKLES = ("other.pickle", "pickle.pkl")
CLASS_FOLDER = "_tensordict"


LeafShape = Annotated[
    tuple[Count, ...],
    Check(
        f"a list of at most {MOST_DIMENSIONS} sizes",
        lambda shape: (
            len(shape) <= MOST_DIMENSIONS
            and math.prod(max(1, size) for size in shape) <= 2**56  # beyond any file
        ),
    ),
]


@dataclass(frozen=True)
class _Leaf:
    """What ``meta.json`` says of a tensor."""

    dtype: Annotated[str, Check("an element type of torch", DTYPES.__contains__)]
    shape: LeafShape
    is_nested: Any = False


@dataclass(frozen=True)
class _Level:
    """One folder."""

    folder: Path
    batch: tuple[int, ...]
    depth: int
    mapped: bool
    escaped: bool
    left_out: list[str] | None
    """Where entries that are no tensors are not opened, the paths of these."""

    @property
    def meta(self) -> Path:
        """The file that says what is in the folder."""
        return self.folder / META_FILENAME

    def check_batch(self, batch: tuple[int, ...], name: str) -> None:
        """Check that a batch size begins with that of the level above."""
        if batch[: len(self.batch)] != self.batch:
            raise wrong(self.meta, name, f"sizes that begin with {list(self.batch)}", list(batch))

    def below(self, name: str, batch: tuple[int, ...]) -> _Level:
        """Return the level of a folder in this one."""
        if self.depth == MOST_DEPTH:
            raise DamagedDataset(f"{self.folder} is more than {MOST_DEPTH} folders deep.")
        return replace(self, folder=self.folder / name, batch=batch, depth=self.depth + 1)


def read_tensordict(
    folder: Path, *, mapped: bool = False, escaped: bool = False, left_out: list[str] | None = None
) -> TensorDictBase:
    """Return the TensorDict of a folder; a tensorclass comes as a TensorDict."""
    rows = _read(_Level(folder, (), 0, mapped, escaped, left_out))
    if not isinstance(rows, TensorDictBase) or isinstance(rows, NonTensorStack):
        raise UsageError(f"{folder} is not a TensorDict but a {type(rows).__name__}.")
    return rows


def _read(level: _Level) -> Rows:
    check_folder(level.folder)
    meta = read_state(level.meta, MOST_BYTES)
    kind = meta.get("_type")
    if not isinstance(kind, str):
        raise wrong(level.meta, "_type", "the name of a class", kind)
    if kind in _READERS:
        return _READERS[kind](level, meta)
    if not os.path.lexists(level.folder / CLASS_FOLDER):
        raise UsageError(
            f"{level.folder} holds a {kind}, which cannot be loaded: only TensorDicts, "
            "tensorclasses and plain values can. Its class was not imported."
        )
    return _read_class(level, meta)


def _read_tensordict(level: _Level, meta: StateDict) -> TensorDict:
    path, batch = level.meta, _shape(level, meta.get("shape"), "shape")
    level.check_batch(batch, "shape")
    entries: StateDict = {}
    for stored, entry in meta.items():
        if not isinstance(entry, dict):
            if stored in RESERVED_NAMES or stored.startswith("_"):
                continue
            raise wrong(path, stored, "what is known of an entry", entry)
        name = entry_name(stored, level.depth, "type" in entry) if level.escaped else stored
        if level.left_out is not None and str(entry.get("type")).startswith("NonTensor"):
            level.left_out.append(str(level.folder / file_name(stored)))
            continue
        if "type" in entry:
            entries[name] = _read(level.below(file_name(stored), batch))
            continue
        leaf = _read_leaf(level.folder / f"{file_name(stored)}.memmap", entry, level.mapped)
        if tuple(leaf.shape[: len(batch)]) != batch:
            raise wrong(path, stored, f"a shape that begins with {list(batch)}", list(leaf.shape))
        entries[name] = leaf
    if level.escaped:
        _check_named(level, meta)
    return TensorDict(entries, batch)


def _read_leaf(path: Path, entry: StateDict, mapped: bool) -> torch.Tensor:
    """Return the tensor of a file."""
    leaf = checked(_Leaf, entry, path, path.stem)
    if leaf.is_nested:
        raise UsageError(f"{path} is a nested tensor, which cannot be loaded. Dump a padded one.")
    dtype, shape = DTYPES[leaf.dtype], leaf.shape
    size, num_bytes = math.prod(shape) * dtype.itemsize, 0
    if not size:
        return torch.empty(0, dtype=torch.uint8).view(dtype).view(shape)  # without a warning
    with suppress(FileNotFoundError), open_file(path) as file:
        num_bytes = os.fstat(file.fileno()).st_size
        if num_bytes >= size and mapped:
            return _mapped(file, size).view(dtype).view(shape)
        if num_bytes >= size:
            check_memory(size, str(path))
            content = np.fromfile(file, np.uint8, size)
            num_bytes = len(content)  # less where the file was cut off in between
            if num_bytes == size:
                return torch.from_numpy(content).view(dtype).view(shape)
    raise DamagedDataset(f"{path} has {num_bytes} of {size} bytes. Dump the buffer again.")


def _mapped(file: BufferedReader, size: int) -> torch.Tensor:
    with warnings.catch_warnings():
        # torch warns that it cannot forbid writes.
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        return torch.frombuffer(map_descriptor(file.fileno(), size), dtype=torch.uint8)


def _shape(level: _Level, sizes: object, name: str) -> tuple[int, ...]:
    shape: tuple[int, ...] = checked(cast(Any, LeafShape), sizes, level.meta, name)
    return shape


def _check_named(level: _Level, meta: StateDict) -> None:
    """Check that every leaf and folder of a level is an entry of its JSON."""
    entries = {name: entry for name, entry in meta.items() if isinstance(entry, dict)}
    known = {
        file_name(name) if "type" in entry else f"{file_name(name)}.memmap"
        for name, entry in entries.items()
    }
    with os.scandir(level.folder) as files:
        unknown = [
            file.name
            for file in files
            if file.name not in known
            and (file.name.endswith(".memmap") or file.is_dir(follow_symlinks=False))
        ]
    if unknown:
        raise DamagedDataset(
            f"{level.meta} has no entry for {min(unknown)}, which is in its "
            "folder. Dump the buffer again."
        )


def _read_stack(level: _Level, meta: StateDict) -> LazyStackedTensorDict:
    path = level.meta
    dim = whole(meta, "stack_dim", path, 64)
    members: list[Rows] = []
    while os.path.lexists(level.folder / str(len(members))):
        members.append(_read(level.below(str(len(members)), ())))
    if not members or meta.get("len", len(members)) != len(members):
        raise wrong(path, "len", f"{len(members)}, the folders that are there", meta.get("len"))
    shapes = {getattr(member, "batch_size", None) for member in members}
    plain = all(isinstance(member, TensorDictBase) for member in members)
    if len(shapes) > 1 or not plain or dim > len(members[0].batch_size):
        raise DamagedDataset(f"{level.folder} holds parts that make no stack along {dim}.")
    stack = LazyStackedTensorDict(*members, stack_dim=dim)
    level.check_batch(tuple(stack.batch_size), "its parts")
    return stack


def _read_value(level: _Level, meta: StateDict) -> NonTensorData:
    if "data" not in meta:
        raise _pickled(level.folder)
    return NonTensorData(data=_value(level, meta["data"]), batch_size=level.batch)


def _read_values(level: _Level, meta: StateDict) -> Rows:
    data = meta.get("data")
    if isinstance(data, str):
        raise _pickled(level.folder)
    batch = _shape(level, meta.get("batch_size", list(level.batch)), "batch_size")
    level.check_batch(batch, "batch_size")
    if 0 in (batch or (0,)) or not _has_shape(data, batch):
        raise wrong(level.meta, "data", f"lists of values of the shape {list(batch)}", data)
    return _stacked(level, data, len(batch))


def _read_class(level: _Level, meta: StateDict) -> TensorDictBase:
    """Return the TensorDict in a tensorclass."""
    if any(os.path.lexists(level.folder / name) for name in PICKLES):
        raise _pickled(level.folder)
    rows = _read(level.below(CLASS_FOLDER, level.batch))
    if not isinstance(rows, TensorDictBase):
        raise wrong(level.folder, CLASS_FOLDER, "a TensorDict", type(rows).__name__)
    for name, value in meta.items():
        if not name.startswith("_"):
            data = NonTensorData(data=_value(level, value), batch_size=rows.batch_size)
            rows.set(name, data)
    return rows


def _has_shape(data: Rows, batch: tuple[int, ...]) -> bool:
    """Return whether lists of lists have a shape."""
    if not batch:
        return True
    is_list = isinstance(data, list) and len(data) == batch[0]
    return is_list and all(_has_shape(item, batch[1:]) for item in data)


def _stacked(level: _Level, data: Rows, ndim: int) -> Rows:
    """Return the values in lists of lists, one for each row of ``ndim`` dimensions."""
    if not ndim:
        return NonTensorData(data=_value(level, data), batch_size=())
    return NonTensorStack(*(_stacked(level, item, ndim - 1) for item in data), stack_dim=0)


def _value(level: _Level, data: Rows) -> Rows:
    try:
        return from_json(data)
    except ValueError as error:
        raise DamagedDataset(f"{level.meta}: {error}.") from error


def _pickled(folder: Path) -> UsageError:
    return UsageError(
        f"{folder} holds an object that was pickled ({' or '.join(PICKLES)}). To load it could run "
        "any code, so it is never loaded. Dump rows of tensors, numbers and texts instead."
    )


_READERS: dict[str, Callable[[_Level, StateDict], Rows]] = {
    TENSORDICT: _read_tensordict,
    LAZY_STACK: _read_stack,
    VALUE: _read_value,
    VALUES: _read_values,
}
