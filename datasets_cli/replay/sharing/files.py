"""Files that several processes map: a column of rows each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from datasets_cli.store.schema.bits import bits_dtype, torch_dtype
from datasets_cli.store.schema.columns import Column, check_key, one_file_each
from datasets_cli.store.ted.writer import write_meta_files


@dataclass(frozen=True)
class ColumnFile:
    """A column of rows in a file."""

    # shape: of the column, `[rows, ...]`.

    path: Path
    shape: tuple[int, ...]
    dtype: torch.dtype

    def map(self) -> torch.Tensor:
        """Return the column, which every process that maps it reads and writes."""
        size = math.prod(self.shape)
        if not size:  # tensordict has no file of a leaf without elements either
            return torch.empty(self.shape, dtype=self.dtype)
        rows = torch.from_file(str(self.path), shared=True, size=size, dtype=self.dtype)
        return rows.view(self.shape)


def make_files(folder: Path, leaves: Sequence[Column], capacity: int) -> list[ColumnFile]:
    """Make the files of leaves, all zeros, as ``TensorDict.load_memmap`` opens them."""
    for leaf in leaves:
        check_key(leaf.key)
        # Not written over: what another storage still maps must not change below it.
        (folder / leaf.filename).unlink(missing_ok=True)
    write_meta_files(folder, leaves, capacity)
    files = []
    for leaf in leaves:
        path, dtype = folder / leaf.filename, bits_dtype(torch_dtype(leaf.dtype))
        files.append(ColumnFile(path, (capacity, *leaf.shape), dtype))
        if math.prod(leaf.shape):
            with one_file_each(path, leaf.key), path.open("xb") as file:
                file.truncate(capacity * leaf.row_bytes)
    return files
