"""The places of rows and batches: read-only mapped files, memory, or a device."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from datasets_cli.errors import UsageError, WrongSize
from datasets_cli.schema.mapped_bytes import map_bytes


@dataclass(frozen=True)
class DeviceOptions:
    """The places of rows and of their batches.

    device   pin_memory   rows                 batches
    None     False        on the disk          in memory
    cuda     False        on the device        on the device, gathered there
    None     True         on the disk          in page-locked memory
    cuda     True         on the disk          on the device, through page-locked memory
    """

    device: torch.device | None = None
    pin_memory: bool = False
    contiguous: bool = False

    @cached_property
    def storage_device(self) -> torch.device | None:
        """The device whose memory contains the rows; None if they stay on the disk."""
        return None if self.pin_memory else self.device

    @cached_property
    def moves(self) -> bool:
        """Whether batches are on a device or in page-locked memory."""
        return self.pin_memory or (self.device is not None and self.device.type != "cpu")

    def to_output(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a new tensor, moved to the place of batches."""
        is_pinned = self.pin_memory and self.device is None
        return tensor.pin_memory() if is_pinned else sent(tensor, self.device)


ON_DISK = DeviceOptions()


def sent(tensor: torch.Tensor, device: torch.device | None) -> torch.Tensor:
    """Copy a tensor to a device without waiting for CUDA; None returns the tensor."""
    if device is None or device.type != "cuda":
        return tensor if device is None else tensor.to(device)
    # A copy from memory that is not page-locked waits for all pending work of the device.
    return (tensor.pin_memory() if tensor.is_cpu else tensor).to(device, non_blocking=True)


def check_device_room(path: str, size: int, device: torch.device) -> None:
    """Check that a file fits into the free memory of CUDA, including the cache of torch."""
    if device.type != "cuda":
        return
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if size > (free := torch.cuda.mem_get_info(device)[0] + cached):
        raise WrongSize(
            f"{path}: a copy takes {size:,} bytes; {device} has {free:,} bytes of free memory.",
            argument="device",
            path=path,
            expected=f"{free:,} bytes at most",
            found=size,
            advice="Add pin_memory=True to leave the rows on the disk, or read fewer columns=.",
        )


def choose_device_options(
    device: str | torch.device | None, pin_memory: bool, contiguous: bool
) -> DeviceOptions:
    """Return the options for these arguments on this machine."""
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
            f"says: {str(error).splitlines()[0]}",
            argument="device",
            expected=expected,
            found=device,
        ) from error


def can_page_lock(is_asked: bool) -> bool:
    """Return whether to page-lock memory if a user requests it."""
    # Without an accelerator a user only gets a warning, as in `torch.utils.data.DataLoader`.
    if is_asked and not torch.accelerator.is_available():
        warnings.warn(
            "pin_memory=True has no effect on this machine without an accelerator.", stacklevel=4
        )
        return False
    return is_asked


with warnings.catch_warnings():
    # torch warns once in a process that it cannot prevent writes to a read-only mapping. Changing
    # the filters for each file would cost as much as mapping it.
    warnings.simplefilter("ignore")
    torch.frombuffer(b"\0", dtype=torch.uint8)


class MappedFiles:
    """The files of a folder as tensors, each mapped, or copied into a device's memory, once."""

    def __init__(
        self, folder: Path, listed: Collection[str], device: torch.device | None = None
    ) -> None:
        self.folder = folder
        self._prefix = f"{folder}/"  # joining a str takes a tenth of the time of a Path
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
        """Return a file as a tensor of this dtype and shape."""
        if name not in self._tensors:
            tensor = map_file(self._prefix + name, dtype, shape)
            if self.device is not None:
                check_device_room(self._prefix + name, tensor.nbytes, self.device)
                tensor = tensor.to(self.device, copy=True)
                if check is not None and self.device.type != "meta":  # which has no values
                    check(tensor)
            self._tensors[name] = tensor
        return self._tensors[name]


def map_file(path: Path | str, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """Map a file as a tensor of this dtype and shape."""
    # A write to it kills the process. A private mapping would not, but fails above the memory size.
    if (size := math.prod(shape) * dtype.itemsize) == 0:
        return torch.empty(shape, dtype=dtype)  # no file
    return torch.frombuffer(map_bytes(path, size), dtype=dtype).view(shape)
