"""Where rows live, in files mapped read-only or in a device's memory, and where batches go."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from datasets_cli.damage import damaged
from datasets_cli.errors import DamagedDataset, UsageError
from datasets_cli.schema.trajectory_file import HEADER_BYTES, check_table
from datasets_cli.sources.disk import open_sized

# Before Python 3.13 `mmap.mmap` keeps a descriptor as long as the mapping lives. A dataset has many
# files, and macOS allows a process 256: it could open twenty. The C library's function keeps none.
_LIBC = ctypes.CDLL(None, use_errno=True)
_MAP = _LIBC.mmap
_MAP.restype = ctypes.c_void_p
_MAP.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *3 * (ctypes.c_int,), ctypes.c_long)
_UNMAP = _LIBC.munmap
_UNMAP.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value


@dataclass(frozen=True)
class DeviceOptions:
    """Where rows live, and where the batches made of them go.

    device   pin_memory   rows                 batches
    None     False        on the disk          in memory
    cuda     False        in the device        in the device, gathered there
    None     True         on the disk          in page-locked memory
    cuda     True         on the disk          in the device, through page-locked memory
    """

    device: torch.device | None = None
    pin_memory: bool = False
    contiguous: bool = False

    @property
    def storage_device(self) -> torch.device | None:
        """The device whose memory holds the rows; None where they stay on the disk."""
        return None if self.pin_memory else self.device

    @property
    def moves(self) -> bool:
        """Whether batches are anywhere but in the plain memory that rows are read from."""
        return self.pin_memory or (self.device is not None and self.device.type != "cpu")

    def to_output(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor that is ours to give away, moved to where batches go."""
        if self.pin_memory and tensor.device.type == "cpu":
            tensor = tensor.pin_memory()
        if self.device is None:
            return tensor
        return tensor.to(self.device, non_blocking=self.pin_memory)


ON_DISK = DeviceOptions()


def choose_device_options(
    device: str | torch.device | None, pin_memory: bool, contiguous: bool
) -> DeviceOptions:
    """Return the options that these arguments mean on this machine."""
    # See `can_page_lock` for `pin_memory`.
    chosen = None if device is None else usable_device(device)
    return DeviceOptions(chosen, can_page_lock(pin_memory), contiguous)


def usable_device(device: str | torch.device) -> torch.device:
    """Return a device whose memory this process can use."""
    try:
        torch.empty(0, device=device)
        return torch.device(device)
    except (TypeError, RuntimeError, AssertionError) as error:
        accelerator = torch.accelerator.current_accelerator()
        expected = "'cpu'" if accelerator is None else f"'cpu' or '{accelerator}'"
        raise UsageError(
            f"device must be one that this process can use, {expected}, not {device!r}; torch "
            f"says: {str(error).splitlines()[0]}"
        ) from error


def can_page_lock(is_asked: bool) -> bool:
    """Return whether memory is to be page-locked, where a user asks for it."""
    # It can be only where there is an accelerator to copy to: elsewhere a user who asks gets a
    # warning and nothing else, as in `torch.utils.data.DataLoader`.
    if is_asked and not torch.accelerator.is_available():
        warnings.warn(
            "pin_memory=True does nothing here: there is no accelerator to copy to.", stacklevel=4
        )
        return False
    return is_asked


with warnings.catch_warnings():
    # torch warns, once in a process, that it cannot forbid writes into a read-only mapping. To
    # change the filters at each file would cost as much as mapping it.
    warnings.simplefilter("ignore")
    torch.frombuffer(b"\0", dtype=torch.uint8)


class MappedFiles:
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


def map_bytes(path: Path | str) -> memoryview:
    """Map a whole file read-only."""
    descriptor, size = open_sized(path)  # a file object would cost more than the mapping
    try:
        if not size:
            raise damaged(path, f"{path} is empty")
        return map_descriptor(descriptor, size)
    finally:
        os.close(descriptor)


class _Pages:
    """A mapping, which goes with the last array, tensor or view that is over it."""

    def __init__(self, address: int, size: int) -> None:
        # True: read-only.
        place = {"version": 3, "typestr": "|u1", "shape": (size,), "data": (address, True)}
        self.__array_interface__ = place
        self._end = address, size

    # A finalizer of weakref would cost half as much as the mapping.
    def __del__(self, unmap: Callable[[int, int], int] = _UNMAP) -> None:
        unmap(*self._end)


def map_descriptor(descriptor: int, size: int) -> memoryview:
    """Return the first bytes of an open file, one or more; the descriptor may then be closed."""
    address = _MAP(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    if address == _FAILED:
        error = ctypes.get_errno()
        raise OSError(error, f"it cannot be mapped: {os.strerror(error)}")
    return np.asarray(_Pages(address, size)).data


class TrajectoryTable:
    """The table of a dataset, mapped now and read later, also where it was deleted meanwhile."""

    def __init__(self, path: Path | str, num_rows: int, num_trajectories: int) -> None:
        self._path, self._num_rows = path, num_rows
        try:
            self._mapping = map_bytes(path)
        except OSError as error:
            raise DamagedDataset(f"{path} cannot be read as a trajectory table: {error}") from error
        check_table(path, self._mapping, num_trajectories)

    def read(self) -> np.ndarray:
        """Return a copy of the offsets int64 ``[K + 1]``."""
        offsets = np.frombuffer(self._mapping, "<i8", offset=HEADER_BYTES).astype(np.int64)
        # Compared and not subtracted: the difference of two damaged offsets may overflow.
        flat = np.flatnonzero(offsets[1:] <= offsets[:-1])
        if len(flat) or offsets[0] != 0 or offsets[-1] != self._num_rows:
            where = f"; trajectory {flat[0]} has no row" if len(flat) else ""
            raise damaged(
                self._path,
                f"{self._path}: expected offsets that rise from 0 to {self._num_rows}, found "
                f"{offsets[0]} to {offsets[-1]}{where}",
            )
        return offsets
