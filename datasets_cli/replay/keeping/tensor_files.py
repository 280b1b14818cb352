"""Tensors in files: their bytes, without a header, as tensordict writes them."""

from __future__ import annotations

import math
import mmap
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch

from datasets_cli.checked_json import Check
from datasets_cli.errors import DamagedDataset, UsageError
from datasets_cli.replay.storages.description import bytes_of
from datasets_cli.replay.storages.state_files import checked, open_file
from datasets_cli.schema.bits import TYPE_NAMES
from datasets_cli.schema.columns import MOST_DIMENSIONS
from datasets_cli.schema.mapping import READ_ONLY
from datasets_cli.store.dataset import check_memory

DTYPES: dict[str, torch.dtype] = {f"torch.{name}": dtype for dtype, name in TYPE_NAMES.items()}
"""Element types by their name in ``meta.json``; those that this version of torch has."""


Shape = Annotated[
    tuple[int, ...],
    Check(
        f"a list of at most {MOST_DIMENSIONS} sizes",
        lambda shape: (
            len(shape) <= MOST_DIMENSIONS
            and all(size >= 0 for size in shape)
            and math.prod(max(1, size) for size in shape) <= 2**56  # beyond any file
        ),
    ),
]


@dataclass(frozen=True)
class _Leaf:
    """What ``meta.json`` says of a tensor."""

    dtype: Annotated[str, Check("an element type of torch", DTYPES.__contains__)]
    shape: Shape
    is_nested: Any = False


def check_leaf(name: str, rows: torch.Tensor) -> None:
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


def leaf_json(rows: torch.Tensor) -> dict[str, Any]:
    """Return the entry of ``meta.json`` that describes a tensor."""
    shape = list(rows.shape)
    return {"device": "cpu", "shape": shape, "dtype": str(rows.dtype), "is_nested": False}


def write_leaf(path: Path, rows: torch.Tensor) -> None:
    """Write the bytes of a tensor; one without elements has no file."""
    if rows.numel():
        bytes_of(rows.detach().as_subclass(torch.Tensor).cpu()).tofile(path)


def read_leaf(path: Path, entry: dict[str, Any], mapped: bool) -> torch.Tensor:
    """Return the tensor of a file."""
    leaf = checked(_Leaf, entry, path, path.stem)
    if leaf.is_nested:
        raise UsageError(f"{path} is a nested tensor, which cannot be loaded. Dump a padded one.")
    dtype, shape = DTYPES[leaf.dtype], leaf.shape
    size = math.prod(shape) * dtype.itemsize
    if not size:
        return torch.empty(0, dtype=torch.uint8).view(dtype).view(shape)  # without a warning
    try:
        with open_file(path) as file:
            found = os.fstat(file.fileno()).st_size
            if found >= size:
                return _tensor(_bytes(path, file.fileno(), size, mapped), dtype).view(shape)
    except FileNotFoundError:
        found = 0
    raise DamagedDataset(f"{path} has {found} of {size} bytes. Dump the buffer again.")


def _bytes(path: Path, descriptor: int, size: int, mapped: bool) -> mmap.mmap | bytearray:
    if mapped:
        return mmap.mmap(descriptor, size, **READ_ONLY)
    check_memory(size, str(path))
    content = bytearray(size)
    view, done = memoryview(content), 0
    while done < size:
        step = os.readv(descriptor, [view[done : done + (1 << 30)]])
        if not step:
            raise DamagedDataset(f"{path} has {done} of {size} bytes. Dump the buffer again.")
        done += step
    return content


def _tensor(content: mmap.mmap | bytearray, dtype: torch.dtype) -> torch.Tensor:
    with warnings.catch_warnings():
        # torch warns that it cannot forbid writes.
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        return torch.frombuffer(content, dtype=torch.uint8).view(dtype)
