"""What is said of a dataset's rows when they are opened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class StorageOptions:
    """Where a dataset's rows are held, and what is read of them.

    Args:
        device: copy the rows into this device's memory (``"cuda"``, ``"cpu"``), and give
            batches there; None reads them from the disk. Frames are decoded from the disk.
        pin_memory: leave the rows on the disk and gather each batch into page-locked memory; with a
            ``device``, it is copied there, in one copy for all leaves of the compact layout.
        contiguous: give every leaf memory of its own: leaves of the compact layout are views of
            one tensor, on which ``view(-1)`` raises.
        text: read the columns of text too, as non-tensor entries of batches: in one,
            ``batch["observation", "mission"]`` is a list of str.
    """

    device: str | torch.device | None = None
    pin_memory: bool = False
    contiguous: bool = False
    text: bool = False
