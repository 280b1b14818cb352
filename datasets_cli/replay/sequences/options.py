"""How sequences are made of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from datasets_cli.errors import UsageError

Padding = Literal["left", "right"]


@dataclass(frozen=True, kw_only=True)
class SequenceOptions:
    """How sequences are made of rows.

    Args:
        gamma: the discount a step of the returns to go, from 0 to 1.
        padding: the side that is padded where a trajectory ends, ``"left"`` or ``"right"``.
        action_padding: what is below ``"action"`` in padding; elsewhere it is zeros.
    """

    gamma: float = 1.0
    padding: Padding = "left"
    action_padding: float = 0.0

    def __post_init__(self) -> None:
        if self.padding not in get_args(Padding):
            raise UsageError(f"padding is 'left' or 'right', not {self.padding!r}.")
