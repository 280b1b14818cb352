"""What is said of a dataset's rows when they are opened, and of sequences of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

from datasets_cli.errors import UsageError

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
        contiguous: give every leaf its own memory: leaves of the compact layout are views of
            one tensor, on which ``view(-1)`` raises.
        text: read the columns of text too, as non-tensor entries of batches: in one,
            ``batch["observation", "mission"]`` is a list of str.
        columns: the keys of what is read, ``("next", "reward")`` or ``"next.reward"``, groups such
            as ``"next"`` whole; by default everything. Trajectories and conditions know them all.
    """

    device: str | torch.device | None = None
    pin_memory: bool = False
    contiguous: bool = False
    text: bool = False
    columns: Iterable[str | tuple[str, ...]] | None = None
    previous_reward: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class PreviousRewardOptions(StorageOptions):
    """Rows also have ``reward``, that of the step before; it is made when they are read."""

    previous_reward: ClassVar[bool] = True


PaddedSide = Literal["left", "right"]


@dataclass(frozen=True, kw_only=True)
class SequenceOptions:
    """How sequences are made of rows.

    Args:
        gamma: the discount a step of the returns to go, from 0 to 1.
        padding: the side that is padded where a trajectory ends, ``"left"`` or ``"right"``.
        action_padding: what is below ``"action"`` in padding; elsewhere it is zeros.
    """

    gamma: float = 1.0
    padding: PaddedSide = "left"
    action_padding: float = 0.0

    def __post_init__(self) -> None:
        if self.padding not in get_args(PaddedSide):
            raise UsageError(
                f"padding is 'left' or 'right', not {self.padding!r}.",
                argument="padding",
                expected=get_args(PaddedSide),
                found=self.padding,
            )
