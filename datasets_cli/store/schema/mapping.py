"""Mapping a file read-only as a tensor. Only copies of the tensor leave the store."""

from __future__ import annotations

import math
import mmap
import os
import sys
import warnings
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch

from datasets_cli.damage import damaged
from datasets_cli.sources.disk import open_descriptor

# A mapping otherwise keeps a descriptor open; a dataset has many files, and macOS allows 256.
_NO_DESCRIPTOR: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}

with warnings.catch_warnings():
    # torch warns, once in a process, that it cannot forbid writes into a read-only mapping. To
    # change the filters at each file would cost as much as mapping it.
    warnings.simplefilter("ignore")
    torch.frombuffer(b"\0", dtype=torch.uint8)


class Files:
    """The files of a folder as tensors, each mapped, or copied into a device's memory, once."""

    def __init__(
        self, folder: Path, listed: Collection[str], device: torch.device | None = None
    ) -> None:
        self.folder = folder
        self._prefix = f"{folder}/"  # a text costs a tenth of a Path
        self.listed = listed
        self.device = device
        self._tensors: dict[str, torch.Tensor] = {}

    def load(
        self,
        name: str,
        dtype: torch.dtype,
        shape: tuple[int, ...],
        check: Callable[[torch.Tensor], None] | None = None,
    ) -> torch.Tensor:
        """Return the bytes of a file as a tensor of this element type and shape."""
        if name not in self._tensors:
            tensor = map_file(self._prefix + name, dtype, shape)
            if self.device is not None:
                tensor = tensor.to(self.device, copy=True)
                if check is not None and self.device.type != "meta":  # which has no values
                    check(tensor)
            self._tensors[name] = tensor
        return self._tensors[name]


def map_file(path: Path | str, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """Return the file's bytes as a tensor of this element type and shape."""
    # A write into it would kill the process, and a private mapping, which would not, fails above
    # the size of the memory.
    if (size := math.prod(shape) * dtype.itemsize) == 0:
        return torch.empty(shape, dtype=dtype)  # no file
    mapping = map_bytes(path)
    if len(mapping) != size:
        raise damaged(path, f"{path}: expected {size} bytes, found {len(mapping)}")
    return torch.frombuffer(mapping, dtype=dtype).view(shape)


def map_descriptor(descriptor: int, size: int = 0) -> mmap.mmap:
    """Map the first bytes of an open file read-only; the descriptor may then be closed."""
    return mmap.mmap(descriptor, size, access=mmap.ACCESS_READ, **_NO_DESCRIPTOR)


def map_bytes(path: Path | str) -> mmap.mmap:
    """Map a whole file read-only."""
    descriptor = open_descriptor(path)  # a file object would cost more than the mapping
    try:
        return map_descriptor(descriptor)
    except ValueError as error:
        raise damaged(path, f"{path} is empty") from error
    finally:
        os.close(descriptor)
