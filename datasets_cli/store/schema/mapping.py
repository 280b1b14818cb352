"""Mapping a file read-only as a tensor. Only copies of the tensor leave the store."""

from __future__ import annotations

import math
import mmap
import sys
import warnings
from pathlib import Path
from typing import Any

import torch

# A mapping otherwise keeps a descriptor open; a dataset has many files, and macOS allows 256.
_NO_DESCRIPTOR: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}


class Files:
    """The files of a folder as tensors, each mapped, or copied into a device's memory, once.

    Args:
        folder: where they are.
        device: whose memory they are copied into; None maps them read-only.
    """

    def __init__(self, folder: Path, device: torch.device | None) -> None:
        self.folder = folder
        self.device = device
        self._tensors: dict[str, torch.Tensor] = {}

    def load(self, name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
        """Return the bytes of a file as a tensor of this element type and shape."""
        if name not in self._tensors:
            mapped = map_file(self.folder / name, dtype, shape)
            self._tensors[name] = (
                mapped if self.device is None else mapped.to(self.device, copy=True)
            )
        return self._tensors[name]


def map_file(path: Path, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """Return the file's bytes as a tensor of this element type and shape.

    A write into it would kill the process, and a private mapping, which would not, fails above the
    size of the memory.
    """
    if math.prod(shape) == 0:
        return torch.empty(shape, dtype=dtype)  # no file
    with path.open("rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ, **_NO_DESCRIPTOR)
    with warnings.catch_warnings():
        # torch warns that it cannot forbid writes.
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        return torch.frombuffer(mapping, dtype=dtype).view(shape)
