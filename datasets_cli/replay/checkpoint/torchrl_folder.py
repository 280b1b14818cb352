"""Dumps of TorchRL 0.14 as states of ours, and the memory-mapped folders of tensordict.

PATH/storage/             a TensorDict in files; storage_metadata.json: the number of rows
PATH/writer/metadata.json the time step that is written next
PATH/sampler/             powers of priorities, or the rest of an epoch
PATH/rng_state/           the state of the generator
PATH/buffer_metadata.json the batch size

tensordict's own loader unpickles values that are not tensors, looks up classes by the names in the
folder, omits missing files, fills short files with zeros, and follows links. Here a level is JSON,
a leaf is a regular file that is long enough, and a value that is not a tensor is JSON or rejected.
"""

from __future__ import annotations

import json
import math
import os
import stat
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import numpy as np
import torch
from tensordict import (
    LazyStackedTensorDict,
    NonTensorData,
    NonTensorStack,
    TensorDict,
    TensorDictBase,
)

from datasets_cli.core.checked_json import Check, WrongValue, decode, is_deeper
from datasets_cli.core.system_errors import check_memory
from datasets_cli.errors import DamagedDataset, MissingFile, Unsupported, WrongState
from datasets_cli.replay.arguments import Rows, StateDict
from datasets_cli.replay.checkpoint.state import STATE_FORMAT
from datasets_cli.replay.samplers.epochs import listed_epoch
from datasets_cli.replay.samplers.prioritized import are_priorities
from datasets_cli.replay.samplers.protocol import Sampler
from datasets_cli.replay.samplers.rows import SamplerWithoutReplacement
from datasets_cli.replay.storages.collate import map_rows
from datasets_cli.replay.storages.columns import without_index
from datasets_cli.replay.storages.description import MOST_DEPTH, describe, value_of
from datasets_cli.schema.bits import TYPE_NAMES
from datasets_cli.schema.columns import (
    META_FILENAME,
    MOST_DIMENSIONS,
    RESERVED_NAMES,
    Count,
    encode_name,
    escape_key,
)
from datasets_cli.schema.mapped_bytes import map_descriptor
from datasets_cli.sources.regular_file import open_regular

T = TypeVar("T")

SEAL = "buffer_metadata.json"
"""The file that TorchRL writes last: a folder without it is not a whole dump."""

STORAGE = "storage"
COUNTS = "storage_metadata.json"
WRITER = Path("writer", "metadata.json")
SAMPLER = "sampler"
PRIORITIES = "sampler_metadata.json"
SUM_TREE = "sumtree.memmap"
POWERS = ("alpha", "beta", "eps")
GENERATOR = "rng_state"

TENSORDICT = "<class 'tensordict._td.TensorDict'>"
LAZY_STACK = "<class 'tensordict._lazy.LazyStackedTensorDict'>"
VALUE = "<class 'tensordict.tensorclass.NonTensorData'>"
VALUES = "<class 'tensordict.tensorclass.NonTensorStack'>"
PICKLES = ("other.pickle", "pickle.pkl")
CLASS_FOLDER = "_tensordict"

MAX_JSON_BYTES = 1 << 30
DUMP_AGAIN = "Dump the buffer again."

DTYPES: dict[str, torch.dtype] = {f"torch.{name}": dtype for dtype, name in TYPE_NAMES.items()}
"""The dtypes of this version of torch, by their names in ``meta.json``."""


def read_torchrl_folder(folder: Path, ndim: int, sampler: Sampler) -> StateDict:
    """Return the state of a buffer that TorchRL dumped.

    ``ndim`` and ``sampler`` belong to the buffer that loads it: TorchRL does not write them.
    """
    decoded(_Seal, read_json(folder / SEAL), folder / SEAL)
    rows = _rows_in(folder / STORAGE, ndim)
    steps, *side = rows.shape[:ndim]
    width = max(1, math.prod(side))
    path = folder / WRITER
    writer = read_json(path)
    # Ranks are computed from the rows again. A full ring continues at its oldest step.
    cursor = 0 if "rank_key" in writer else min(whole_number_in(writer, "cursor", path), steps)
    is_counted = "write_count" in writer
    description, columns = describe(
        map_rows(lambda part: part.transpose(0, ndim - 1), rows) if ndim > 1 else rows
    )
    return {
        "sampler": _sampler_state(folder / SAMPLER, sampler),
        "generator": _generator_state(folder / GENERATOR),
        "format": STATE_FORMAT,
        "rows": {"description": description, "columns": columns, "is_list": False},
        "max_size": (steps + 1) * width,  # TorchRL does not write its own
        "writer": {
            "cursor": cursor * width,
            "write_count": (
                whole_number_in(writer, "write_count", path) if is_counted else steps * width
            ),
        },
    }


@dataclass(frozen=True)
class _Seal:
    """The settings of a buffer."""

    batch_size: Annotated[int, Check("a whole number from 1 on", lambda n: n >= 1)] | None = None


def _rows_in(folder: Path, ndim: int) -> TensorDictBase:
    """Return the rows ``[steps, ...]`` of a dump, time first."""
    check_folder(folder)
    counts = read_json(folder / COUNTS)
    if counts.get("is_pytree"):
        raise Unsupported(
            f"{folder} contains tensors that are not in a TensorDict.",
            path=folder,
            expected="rows that are TensorDicts",
            advice="Dump the rows as TensorDicts.",
        )
    rows = read_tensordict(folder)
    if len(rows.batch_size) < ndim:
        expected = f"{ndim} or more dimensions of rows"
        raise wrong_entry(folder, "shape", expected, list(rows.batch_size))
    width = max(1, math.prod(rows.shape[1:ndim]))
    num_rows = whole_number_in(counts, "len", folder / COUNTS, len(rows) * width)
    found: TensorDictBase = without_index(rows[: num_rows // width])  # of TorchRL's writer
    return found


def _sampler_state(folder: Path, sampler: Sampler) -> StateDict | None:
    """Return the state of the sampler, or None if there is none that continues here."""
    if os.path.lexists(folder):
        check_folder(folder)
    if os.path.lexists(folder / PRIORITIES):
        kind = sampler.state_dict().get("kind") if sampler.has_priorities else "by priority"
        return {"kind": kind} | read_priorities(folder)
    if sampler.has_priorities:
        raise WrongState(
            f"{folder} contains no priorities ({PRIORITIES}).",
            path=folder,
            expected="the dump of a prioritized sampler",
            advice="Load it into a buffer with another sampler, and call set_sampler() after that.",
        )
    if not os.path.lexists(folder / META_FILENAME):
        return None
    # TorchRL's epoch of slices counts trajectories differently, so it starts again.
    has_slices = isinstance(sampler, SamplerWithoutReplacement) and sampler.has_slices
    return None if has_slices else _epoch_in(folder)


def _epoch_in(folder: Path) -> StateDict | None:
    """Return the rest of an epoch, or None before its first batch."""
    epoch = read_tensordict(folder)
    # If that epoch has ended, the list is already the next one's.
    order, count = epoch.get("_sample_list", None), epoch.get("len_storage", None)
    if not isinstance(order, torch.Tensor):
        return None
    if not isinstance(count, torch.Tensor) or count.numel() != 1 or count.is_floating_point():
        raise wrong_entry(folder, "len_storage", "a whole number", count)
    return listed_epoch(order, int(count))


def read_priorities(folder: Path) -> StateDict:
    """Return the state of the priorities, without the kind of their sampler."""
    path = folder / PRIORITIES
    metadata = read_json(path)
    capacity = whole_number_in(metadata, "_max_capacity", path)
    version = whole_number_in({"_schema_version": 0} | metadata, "_schema_version", path)
    if version > 1:
        raise Unsupported(
            f"{path} has schema {version}; this version of rlds reads 0 and 1.",
            path=path,
            expected=1,
            found=version,
            advice="Upgrade.",
        )
    alpha, beta, eps = (_number_in(metadata, f"_{name}", path, 0) for name in POWERS)
    powers = _powers_in(folder / SUM_TREE, capacity)
    powers = powers[: np.flatnonzero(powers)[-1] + 1] if powers.any() else powers[:0]
    # With alpha 0 every power is 1, so the priorities are unknown and 1 stands for all of them.
    priorities = powers ** (1 / alpha) - eps if alpha else np.ones_like(powers)
    priorities = np.where(powers > 0, priorities.clip(min=0), -1.0)
    highest: Any = metadata.get("_max_priority")  # the number, or the number and its row
    if not version:  # a transformed number, possibly: pytorch/rl#3925
        highest = float(priorities.max(initial=-1.0))
    elif isinstance(highest, list) and highest:
        highest = highest[0]
    return {
        "alpha": alpha,
        "beta": beta,
        "eps": eps,
        "max_priority": _number_in({"_max_priority": highest}, "_max_priority", path, -1),
        "priorities": torch.from_numpy(priorities),
    }


def _number_in(metadata: StateDict, name: str, path: Path, least: float) -> float:
    """Return a finite number of the settings."""
    found: Any = metadata.get(name)
    try:
        number = float(found) if type(found) in (int, float) else math.nan
    except OverflowError:
        number = math.inf
    if not least <= number < math.inf:
        raise wrong_entry(path, name, f"a number from {least} on", found)
    return number


def _powers_in(path: Path, capacity: int) -> np.ndarray:
    """Return the powers of priorities float64 ``[n]``, 0 for a row without one."""
    try:
        with open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size % 8 or size > 8 * capacity:
                expected = f"float64 of at most {capacity} rows"
                raise _damaged(path, f"has {size} bytes; expected {expected}")
            powers = np.frombuffer(file.read(size), "<f8").astype(np.float64)
    except FileNotFoundError as error:
        raise _missing(path) from error
    if not are_priorities(torch.from_numpy(powers), 0):
        raise _damaged(path, "contains numbers that are not priorities, such as NaN")
    return powers


def _generator_state(folder: Path) -> torch.Tensor | None:
    """Return the state of a generator on the CPU, uint8 ``[n]``; None if there is none."""
    if not os.path.lexists(folder):
        return None
    check_folder(folder)
    device = read_json(folder / META_FILENAME).get("device")
    if device is not None and device != "cpu":
        return None
    state = read_tensordict(folder).get(GENERATOR, None)
    if not isinstance(state, torch.Tensor) or state.dtype != torch.uint8 or state.ndim != 1:
        raise wrong_entry(folder, GENERATOR, "uint8 numbers", state)
    return state


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
    """The entry of a tensor in ``meta.json``."""

    dtype: Annotated[str, Check("a dtype of torch", DTYPES.__contains__)]
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
    non_tensors: list[str] | None
    """The paths of entries that are not tensors, which are then skipped; None to read them."""

    @property
    def meta(self) -> Path:
        """The file that lists the entries of the folder."""
        return self.folder / META_FILENAME

    def check_batch(self, batch: tuple[int, ...], name: str) -> None:
        """Check that a batch size begins with the batch size of the level above."""
        if batch[: len(self.batch)] != self.batch:
            raise wrong_entry(
                self.meta, name, f"sizes that begin with {list(self.batch)}", list(batch)
            )

    def below(self, name: str, batch: tuple[int, ...]) -> _Level:
        """Return the level of a folder in this level."""
        if self.depth == MOST_DEPTH:
            expected = f"{MOST_DEPTH} levels at most"
            raise _damaged(self.folder, f"is too deep; expected {expected}", expected=expected)
        return replace(self, folder=self.folder / name, batch=batch, depth=self.depth + 1)


def read_tensordict(
    folder: Path,
    *,
    mapped: bool = False,
    escaped: bool = False,
    non_tensors: list[str] | None = None,
) -> TensorDictBase:
    """Return the TensorDict in a folder; a tensorclass becomes a TensorDict.

    ``mapped`` tensors are read-only views of the files. ``escaped`` names are escaped as in the
    layout ``ted``. ``non_tensors`` collects the paths of skipped entries, which are not tensors.
    """
    rows = _read(_Level(folder, (), 0, mapped, escaped, non_tensors))
    if not isinstance(rows, TensorDictBase) or isinstance(rows, NonTensorStack):
        raise Unsupported(
            f"{folder} contains a {type(rows).__name__}; expected a TensorDict.",
            path=folder,
            expected="TensorDict",
            found=type(rows).__name__,
        )
    return rows


def _read(level: _Level) -> Rows:
    check_folder(level.folder)
    meta = read_json(level.meta)
    kind = meta.get("_type")
    if not isinstance(kind, str):
        raise wrong_entry(level.meta, "_type", "the name of a class", kind)
    if kind in _READERS:
        return _READERS[kind](level, meta)
    if not os.path.lexists(level.folder / CLASS_FOLDER):
        raise Unsupported(
            f"{level.folder} contains a {kind}, which cannot be loaded.",
            path=level.folder,
            expected="a TensorDict, a tensorclass or plain values",
            found=kind,
            advice="Dump the rows as TensorDicts.",
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
            raise wrong_entry(path, stored, "the entry of a tensor or folder", entry)
        name = entry_name(stored, level.depth, "type" in entry) if level.escaped else stored
        if level.non_tensors is not None and str(entry.get("type")).startswith("NonTensor"):
            level.non_tensors.append(str(level.folder / file_name(stored)))
            continue
        if "type" in entry:
            entries[name] = _read(level.below(file_name(stored), batch))
            continue
        leaf = _read_leaf(level.folder / f"{file_name(stored)}.memmap", entry, level.mapped)
        if tuple(leaf.shape[: len(batch)]) != batch:
            raise wrong_entry(
                path, stored, f"a shape that begins with {list(batch)}", list(leaf.shape)
            )
        entries[name] = leaf
    if level.escaped:
        _check_named(level, meta)
    return TensorDict(entries, batch)


def _read_leaf(path: Path, entry: StateDict, mapped: bool) -> torch.Tensor:
    """Return the tensor of a file."""
    leaf = decoded(_Leaf, entry, path, path.stem)
    if leaf.is_nested:
        raise Unsupported(
            f"{path} is a nested tensor, which cannot be loaded.",
            path=path,
            advice="Dump a padded tensor.",
        )
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
    raise _damaged(path, f"has {num_bytes} of {size} bytes", expected=size, found=num_bytes)


def _mapped(file: BufferedReader, size: int) -> torch.Tensor:
    with warnings.catch_warnings():
        # torch warns that it cannot forbid writes.
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        return torch.frombuffer(map_descriptor(file.fileno(), size), dtype=torch.uint8)


def _shape(level: _Level, sizes: object, name: str) -> tuple[int, ...]:
    shape: tuple[int, ...] = decoded(cast(Any, LeafShape), sizes, level.meta, name)
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
        problem = f"has no entry for {min(unknown)}, which is in its folder"
        raise _damaged(level.meta, problem, key=min(unknown))


def _read_stack(level: _Level, meta: StateDict) -> LazyStackedTensorDict:
    path = level.meta
    dim = whole_number_in(meta, "stack_dim", path, 64)
    members: list[Rows] = []
    while os.path.lexists(level.folder / str(len(members))):
        members.append(_read(level.below(str(len(members)), ())))
    if not members or meta.get("len", len(members)) != len(members):
        raise wrong_entry(path, "len", f"{len(members)}, the number of folders", meta.get("len"))
    shapes = {getattr(member, "batch_size", None) for member in members}
    plain = all(isinstance(member, TensorDictBase) for member in members)
    if len(shapes) > 1 or not plain or dim > len(members[0].batch_size):
        raise _damaged(level.folder, f"has parts that cannot be stacked along dimension {dim}")
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
        raise wrong_entry(level.meta, "data", f"lists of values of the shape {list(batch)}", data)
    return _stacked(level, data, len(batch))


def _read_class(level: _Level, meta: StateDict) -> TensorDictBase:
    """Return the TensorDict of a tensorclass."""
    if any(os.path.lexists(level.folder / name) for name in PICKLES):
        raise _pickled(level.folder)
    rows = _read(level.below(CLASS_FOLDER, level.batch))
    if not isinstance(rows, TensorDictBase):
        raise wrong_entry(level.folder, CLASS_FOLDER, "a TensorDict", type(rows).__name__)
    for name, value in meta.items():
        if not name.startswith("_"):
            data = NonTensorData(data=_value(level, value), batch_size=rows.batch_size)
            rows.set(name, data)
    return rows


def _has_shape(data: Rows, batch: tuple[int, ...]) -> bool:
    """Return whether nested lists have the shape ``batch``."""
    if not batch:
        return True
    is_list = isinstance(data, list) and len(data) == batch[0]
    return is_list and all(_has_shape(item, batch[1:]) for item in data)


def _stacked(level: _Level, data: Rows, ndim: int) -> Rows:
    """Return lists of values, nested ``ndim`` deep, as one entry of a TensorDict."""
    if not ndim:
        return NonTensorData(data=_value(level, data), batch_size=())
    return NonTensorStack(*(_stacked(level, item, ndim - 1) for item in data), stack_dim=0)


def _value(level: _Level, data: Rows) -> Rows:
    try:
        return value_of(data)
    except ValueError as error:
        raise DamagedDataset(f"{level.meta}: {error}.", path=level.meta) from error


def _pickled(folder: Path) -> Unsupported:
    return Unsupported(
        f"{folder} contains a pickled object ({' or '.join(PICKLES)}). Pickles can run code, so "
        "they are never loaded.",
        path=folder,
        advice="Dump rows of tensors, numbers and texts.",
    )


_READERS: dict[str, Callable[[_Level, StateDict], Rows]] = {
    TENSORDICT: _read_tensordict,
    LAZY_STACK: _read_stack,
    VALUE: _read_value,
    VALUES: _read_values,
}


def read_json(path: Path) -> StateDict:
    """Return the JSON object in a file."""
    try:
        with open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > MAX_JSON_BYTES:
                problem = f"has {size:,} bytes; expected at most {MAX_JSON_BYTES:,}"
                raise _damaged(path, problem, expected=MAX_JSON_BYTES, found=size)
            content = file.read(size)
    except FileNotFoundError as error:
        raise _missing(path) from error
    try:
        found = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"is not JSON: {error}") from error
    if not isinstance(found, dict) or is_deeper(found, MOST_DEPTH + 1):
        raise _damaged(path, f"is not a JSON object of at most {MOST_DEPTH} levels")
    return found


def _missing(path: Path) -> MissingFile:
    return MissingFile(f"{path} does not exist: no buffer was dumped there.", path=path)


def open_file(path: Path) -> BufferedReader:
    """Open a file of a dump for reading."""
    try:
        return open_regular(path)
    except (FileNotFoundError, PermissionError):
        raise
    except (DamagedDataset, OSError, ValueError) as error:
        raise _damaged(path, "is a link, pipe or device, and was not opened") from error


def check_folder(path: Path) -> None:
    """Check that a path is a folder, and not a link."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError as error:
        raise _missing(path) from error
    except (OSError, ValueError) as error:
        raise _damaged(path, f"cannot be a folder of a dump: {error}") from error
    if not stat.S_ISDIR(mode):
        raise _damaged(path, "is not a folder")


def decoded(kind: type[T], found: object, path: Path, where: str = "") -> T:
    """Return a JSON value from a file as a dataclass or another type."""
    try:
        return decode(kind, found, where)
    except WrongValue as error:
        raise _damaged(path, f"is wrong: {error}", **error.details) from error


def whole_number_in(state: StateDict, name: str, path: Path, most: int = 2**62) -> int:
    """Return a whole number from the JSON of a file."""
    number = state.get(name)
    is_whole = type(number) is int or (type(number) is float and number.is_integer())  # TorchRL's
    if number is None or not is_whole or not 0 <= number <= most:
        raise wrong_entry(path, name, f"a whole number from 0 to {most}", number)
    return int(number)


def wrong_entry(path: Path, name: str, expected: str, found: object) -> DamagedDataset:
    """Return the error of an entry of a file."""
    if isinstance(found, torch.Tensor):  # torch prints one of many dimensions by recursion
        shown = f"a tensor of {found.dtype} and the shape {list(found.shape)}"
    else:
        shown = repr(found) if len(repr(found)) < 80 else f"{repr(found)[:80]}..."
    problem = f"has {name} {shown}; expected {expected}"
    return _damaged(path, problem, key=name, expected=expected, found=shown)


def _damaged(path: Path, problem: str, **details: Any) -> DamagedDataset:
    return DamagedDataset(f"{path} {problem}.", path=path, **details, advice=DUMP_AGAIN)


def stored_name(name: str, depth: int, is_folder: bool) -> str:
    """Return the name under which the layout ``ted`` stores an entry of a level."""
    # Names that tensordict reserves, or that a file could have, get one `~` more.
    key = (*[""] * depth, name, *([""] if is_folder else []))
    return escape_key(key)[depth]


def entry_name(stored: str, depth: int, is_folder: bool) -> str:
    """Return the name of an entry; the inverse of ``stored_name``."""
    name = stored.removesuffix("~")
    return name if stored_name(name, depth, is_folder) == stored else stored


def file_name(stored: str) -> str:
    """Return the file name of a stored name, percent-encoded as tensordict does."""
    return encode_name(stored) or "%"
