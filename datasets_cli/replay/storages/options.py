"""The options of a dataset's storage, and of sequences."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

from datasets_cli.core.options import check_choice

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class StorageOptions:
    """Options of a dataset's storage: the memory of its rows, and the columns to read.

    Args:
        device: copy the rows to the memory of this device (``"cuda"``, ``"cpu"``), and return
            batches there; None reads rows from the disk. Frames are always decoded from the disk.
        pin_memory: read rows from the disk and gather each batch into page-locked memory; with a
            ``device``, the batch is copied there, in one copy in the compact layout.
        contiguous: give every leaf separate memory. In the compact layout leaves are otherwise
            views of one tensor, on which ``view(-1)`` raises.
        text: read text columns too, as non-tensor entries of batches:
            ``batch["observation", "mission"]`` is a list of str.
        columns: the keys of the columns to read, ``("next", "reward")`` or ``"next.reward"``, or of
            groups such as ``"next"``; all by default. Trajectories and conditions use all columns.
    """

    device: str | torch.device | None = None
    pin_memory: bool = False
    contiguous: bool = False
    text: bool = False
    columns: Iterable[str | tuple[str, ...]] | None = None
    previous_reward: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class PreviousRewardOptions(StorageOptions):
    """Options of rows with ``reward``, the reward of the previous step, computed when read."""

    previous_reward: ClassVar[bool] = True


PaddedSide = Literal["left", "right"]


@dataclass(frozen=True, kw_only=True)
class SequenceOptions:
    """Options of sequences.

    Args:
        gamma: the discount a step of the returns to go, from 0 to 1.
        padding: the side of the padding of sequences at the end of a trajectory, ``"left"`` or
            ``"right"``.
        action_padding: the number in the padding of ``"action"``; other columns have zeros.
    """

    gamma: float = 1.0
    padding: PaddedSide = "left"
    action_padding: float = 0.0

    def __post_init__(self) -> None:
        check_choice("padding", self.padding, get_args(PaddedSide))
