"""Opening a committed dataset: mapped read-only, handing out copies alone.

A mapped view never leaves this file. Writing into a ``PROT_READ`` page kills the process, and a
private mapping fails above the size of the memory, so ``rows`` copies what it is asked for.
"""

from __future__ import annotations

import mmap
import os
import warnings
from functools import cached_property
from pathlib import Path

import torch

from datasets_cli.errors import DamagedDataset, UsageError
from datasets_cli.store.check import check_sizes
from datasets_cli.store.columns import Column, Key, show_key
from datasets_cli.store.manifest import Manifest, read_manifest
from datasets_cli.store.trajectories import FILENAME as TRAJECTORIES
from datasets_cli.store.trajectories import read_offsets


SMALL_BYTES = 1 << 20  # never worth refusing


class Dataset:
    """The rows of one committed dataset. Nothing here writes.

    Args:
        folder: the dataset folder.
        manifest: its manifest, already checked against the files.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self._leaves = {
            column.key: _map(folder, column, manifest.num_transitions)
            for column in manifest.columns
        }

    def __len__(self) -> int:
        return self.manifest.num_transitions

    @property
    def keys(self) -> tuple[Key, ...]:
        """The keys of all leaves."""
        return tuple(self._leaves)

    @cached_property
    def offsets(self) -> torch.Tensor:
        """Trajectory offsets int64 ``[K + 1]``; trajectory k is rows ``offsets[k:k+2]``."""
        offsets = read_offsets(self.folder / TRAJECTORIES, len(self))
        if len(offsets) - 1 != self.manifest.num_trajectories:
            raise DamagedDataset(
                f"{self.manifest.id}: the manifest counts {self.manifest.num_trajectories} "
                f"trajectories, the table {len(offsets) - 1}."
            )
        return torch.from_numpy(offsets)

    def rows(self, index: torch.Tensor) -> dict[Key, torch.Tensor]:
        """Return copies of the rows ``index`` int64 ``[B]``, one tensor ``[B, *shape]`` a key."""
        return {key: leaf.index_select(0, index) for key, leaf in self._leaves.items()}

    def columns(self, key: Key) -> dict[Key, torch.Tensor]:
        """Return copies of the whole leaf ``key``, or of every leaf below it.

        Raises:
            KeyError: there is none.
            UsageError: they would take more than half of the free memory.
        """
        found = {name: leaf for name, leaf in self._leaves.items() if name[: len(key)] == key}
        if not found:
            known = ", ".join(show_key(name) for name in self._leaves)
            raise KeyError(f"{self.manifest.id} has no {show_key(key)}. It has: {known}")
        check_memory(sum(leaf.nbytes for leaf in found.values()), self.manifest.id)
        return {name: leaf.clone() for name, leaf in found.items()}

    def run(self, start: int, stop: int) -> dict[Key, torch.Tensor]:
        """Return copies of the rows ``start`` to ``stop - 1``.

        Raises:
            UsageError: they would take more than half of the free memory.
        """
        row_bytes = sum(column.row_bytes for column in self.manifest.columns)
        check_memory((stop - start) * row_bytes, self.manifest.id)
        return {key: leaf[start:stop].clone() for key, leaf in self._leaves.items()}


def open_dataset(folder: Path) -> Dataset:
    """Open the dataset in ``folder``.

    Raises:
        FileNotFoundError: there is no manifest, so there is no dataset.
        DamagedDataset: a file is missing, linked, or not exactly as long as the manifest says.
    """
    manifest = read_manifest(folder)
    check_sizes(folder, manifest)
    for column in manifest.columns:
        entry = manifest.files.get(column.filename, {"bytes": 0})
        if entry["bytes"] != column.row_bytes * manifest.num_transitions:
            raise DamagedDataset(
                f"{manifest.id}: {column.filename} has {entry['bytes']} bytes, its column needs "
                f"{column.row_bytes} for each of {manifest.num_transitions} rows."
            )
    return Dataset(folder, manifest)


def check_memory(size_bytes: int, what: str) -> None:
    """Check that a copy fits into half of the free memory.

    Raises:
        UsageError: it does not.
    """
    free = free_memory()
    if size_bytes > free // 2 and size_bytes > SMALL_BYTES:
        raise UsageError(
            f"{what}: a copy of these rows takes {size_bytes:,} bytes, more than half of the "
            f"{free:,} bytes of free memory. Ask for fewer rows, or sample batches."
        )


def free_memory() -> int:
    """Return the bytes of memory that are free or can be freed at once; all of it where unknown."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except FileNotFoundError:
        pass  # not Linux
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _map(folder: Path, column: Column, num_rows: int) -> torch.Tensor:
    dtype = getattr(torch, column.dtype)
    shape = (num_rows, *column.shape)
    if not column.row_bytes:
        return torch.empty(shape, dtype=dtype)
    with (folder / column.filename).open("rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    with warnings.catch_warnings():
        # torch warns that it cannot forbid writes; this file hands out copies only.
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        return torch.frombuffer(mapping, dtype=dtype).view(shape)
