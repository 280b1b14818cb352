"""Memory-mapped files of rows: one file a column, as ``TensorDict.load_memmap`` opens them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from datasets_cli.core.system_errors import is_full
from datasets_cli.errors import DiskFull, NotWritable, SourceError, WrongRows
from datasets_cli.replay.storages.columns import RowSchema, TensorDictStructure
from datasets_cli.schema.bits import bits_dtype, torch_dtype, type_name
from datasets_cli.schema.columns import Column, check_key, one_file_each
from datasets_cli.schema.shapes import RowNumbers
from datasets_cli.sources.disk import free_bytes, reserve
from datasets_cli.sources.temporary_folders import is_in_memory
from datasets_cli.store.layouts.ted_writer import write_meta_files

PIECE_BYTES = 64 << 20
"""Bytes of a file that are reserved at once, ahead of the row that is written next."""

CONTROL = ".shared-"
"""The start of the name of the folder by which processes share the rows beside it."""


@dataclass
class ColumnFiles:
    """The files of columns in a folder, ``leaf.filename`` each, for ``capacity`` rows."""

    folder: Path
    leaves: tuple[Column, ...]
    capacity: int
    _reserved: range = field(default=range(0), init=False)  # rows whose disk space is reserved

    @classmethod
    def create(cls, folder: Path, schema: RowSchema) -> ColumnFiles:
        """Create the files of the columns; in shared memory all their space is reserved."""
        files = cls(folder, columns_of(schema), schema.capacity)
        try:
            for leaf in files.leaves:
                check_key(leaf.key)
        except SourceError as error:  # before a file was created
            raise error.as_kind(WrongRows) from error
        try:
            with room_for(folder, files.capacity * files.row_bytes):
                folder.mkdir(parents=True, exist_ok=True)
                files._create_empty()
                if is_in_memory(folder):
                    files._reserve_all()
        except SourceError as error:  # the user can rename the keys of these rows
            files.delete()
            raise error.as_kind(WrongRows) from error
        except BaseException:
            files.delete()
            raise
        return files

    @property
    def row_bytes(self) -> int:
        """The bytes of a row in all files."""
        return sum(leaf.row_bytes for leaf in self.leaves)

    def columns(self) -> list[torch.Tensor]:
        """Map the files: columns ``[capacity, ...]`` that every process reads and writes."""
        return [self._map(leaf) for leaf in self.leaves]

    def delete(self) -> None:
        """Delete the files."""
        for leaf in self.leaves:
            (self.folder / leaf.filename).unlink(missing_ok=True)

    def reserve(self, rows: slice | RowNumbers) -> None:
        """Reserve disk space for the next rows to write."""
        first, end = span(rows)
        reserved = self._reserved
        if reserved.start <= first and end <= reserved.stop:
            return
        stop = self._reserve(first, end)
        is_next = reserved.start <= first <= reserved.stop
        self._reserved = range(reserved.start if is_next else first, stop)

    def _create_empty(self) -> None:
        self.delete()  # another storage may still map files of these names: keep its contents
        write_meta_files(self.folder, self.leaves, self.capacity)
        for leaf in self.leaves:
            path = self.folder / leaf.filename
            if math.prod(leaf.shape):
                with one_file_each(path, leaf.key), path.open("xb") as file:
                    file.truncate(self.capacity * leaf.row_bytes)

    def _map(self, leaf: Column) -> torch.Tensor:
        dtype, size = bits_dtype(torch_dtype(leaf.dtype)), self.capacity * math.prod(leaf.shape)
        if not size:  # tensordict has no file of a leaf without elements either
            return torch.empty((self.capacity, *leaf.shape), dtype=dtype)
        path = str(self.folder / leaf.filename)
        rows = torch.from_file(path, shared=True, size=size, dtype=dtype)
        return rows.view(self.capacity, *leaf.shape)

    def _reserve_all(self) -> None:
        num_bytes = self.capacity * self.row_bytes
        if num_bytes > free_bytes(self.folder):
            raise _no_room(self.folder, num_bytes)
        self._reserve(0, self.capacity)

    def _reserve(self, first: int, end: int) -> int:
        """Reserve disk space from row ``first`` beyond row ``end``; return the row at its end."""
        # Writing to a mapped page without disk space kills the process.
        reached = self.capacity
        for leaf in self.leaves:
            if not (row_bytes := leaf.row_bytes):
                continue
            start, needed = first * row_bytes, end * row_bytes
            ahead = min(-(-needed // PIECE_BYTES) * PIECE_BYTES, self.capacity * row_bytes)
            stop = ahead if ahead - start <= free_bytes(self.folder) else needed
            num_bytes = (end - first) * self.row_bytes
            path = self.folder / leaf.filename
            with room_for(self.folder, num_bytes), path.open("r+b") as file:
                reserve(file.fileno(), start, stop)
            reached = min(reached, stop // row_bytes)
        return reached


def columns_of(schema: RowSchema) -> tuple[Column, ...]:
    """Return the columns of rows that are tensors."""
    structure = schema.structure
    numbered = [(str(number),) for number, _ in enumerate(schema.row_types)]
    keys = structure.keys if isinstance(structure, TensorDictStructure) else numbered
    return tuple(
        Column(key, type_name(dtype), tuple(size))
        for key, (dtype, size) in zip(keys, schema.tensor_types, strict=True)
    )


def span(rows: slice | RowNumbers) -> tuple[int, int]:
    """Return the first row, and the row after the last one."""
    if isinstance(rows, slice):
        return rows.start, rows.stop
    return (int(rows.min()), int(rows.max()) + 1) if len(rows) else (0, 0)


def check_empty(folder: Path) -> None:
    """Raise ``NotWritable`` if a folder may contain rows of another storage."""
    if folder.exists() and any(not path.name.startswith(CONTROL) for path in folder.iterdir()):
        raise NotWritable(
            f"{folder} is not empty: it may contain rows of another storage.",
            argument="scratch_dir",
            path=str(folder),
            advice="Choose a new scratch_dir, or pass existsok=True to overwrite it.",
        )


@contextmanager
def room_for(folder: Path, num_bytes: int) -> Iterator[None]:
    """Convert the error of a full disk to ``DiskFull`` with the needed and free bytes."""
    try:
        yield
    except FileNotFoundError as error:
        raise rows_are_gone(folder) from error
    except OSError as error:
        if not is_full(error):
            raise
        raise _no_room(folder, num_bytes) from error


def rows_are_gone(folder: Path) -> NotWritable:
    """Return the error of rows whose files were deleted."""
    return NotWritable(
        f"The shared rows in {folder} no longer exist: their files were deleted, another storage "
        "was created in the folder, or the process that created them has exited.",
        path=str(folder),
        advice="Do not delete the buffer in that process while others use it, and pass each "
        "LazyMemmapStorage a separate scratch_dir.",
    )


def _no_room(folder: Path, num_bytes: int) -> DiskFull:
    return DiskFull(
        f"These rows need {num_bytes:,} bytes in {folder}; its disk has {free_bytes(folder):,} "
        "bytes free. No row was written.",
        path=str(folder),
        expected=num_bytes,
        found=free_bytes(folder),
        advice="Free disk space, choose a smaller max_size, give shared memory more space (docker "
        "run --shm-size), or use a LazyMemmapStorage with a scratch_dir on another disk.",
    )
