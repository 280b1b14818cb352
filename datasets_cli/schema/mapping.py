"""Where rows live, in files mapped read-only or in a device's memory, and where batches go."""

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

    @cached_property
    def storage_device(self) -> torch.device | None:
        """The device whose memory holds the rows; None where they stay on the disk."""
        return None if self.pin_memory else self.device

    @cached_property
    def moves(self) -> bool:
        """Whether batches are anywhere but in the plain memory that rows are read from."""
        return self.pin_memory or (self.device is not None and self.device.type != "cpu")

    def to_output(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor that is ours to give away, moved to where batches go."""
        is_pinned = self.pin_memory and self.device is None
        return tensor.pin_memory() if is_pinned else sent(tensor, self.device)


ON_DISK = DeviceOptions()


def sent(tensor: torch.Tensor, device: torch.device | None) -> torch.Tensor:
    """Return a tensor on a device, for which CUDA is not waited for; where it is for None."""
    if device is None or device.type != "cuda":
        return tensor if device is None else tensor.to(device)
    # From memory that is not page-locked, a copy waits for all that the device was asked to do.
    return (tensor.pin_memory() if tensor.is_cpu else tensor).to(device, non_blocking=True)


def check_device_room(path: str, size: int, device: torch.device) -> None:
    """Check that a file fits into the free memory of CUDA, what torch keeps for reuse with it."""
    if device.type != "cuda":
        return
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if size > (free := torch.cuda.mem_get_info(device)[0] + kept):
        raise WrongSize(
            f"{path}: a copy takes {size:,} bytes; {device} has {free:,} bytes of free memory.",
            argument="device",
            path=path,
            expected=f"{free:,} bytes at most",
            found=size,
            advice="Pass pin_memory=True too, to leave rows on the disk; or read fewer columns=.",
        )


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
            f"says: {str(error).splitlines()[0]}",
            argument="device",
            expected=expected,
            found=device,
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
                check_device_room(self._prefix + name, tensor.nbytes, self.device)
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
    return torch.frombuffer(map_bytes(path, size), dtype=dtype).view(shape)
