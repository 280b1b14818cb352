"""Where rows live, and where the batches made of them go."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch


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
    chosen = None if device is None else torch.device(device)
    return DeviceOptions(chosen, can_page_lock(pin_memory), contiguous)


def can_page_lock(is_asked: bool) -> bool:
    """Tell whether memory is to be page-locked, where a user asks for it."""
    # It can be only where there is an accelerator to copy to: elsewhere a user who asks gets a
    # warning and nothing else, as in `torch.utils.data.DataLoader`.
    if is_asked and not torch.accelerator.is_available():
        warnings.warn(
            "pin_memory=True does nothing here: there is no accelerator to copy to.", stacklevel=4
        )
        return False
    return is_asked
