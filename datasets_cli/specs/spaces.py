"""The sets of values that specs draw from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class CategoricalBox:
    """The numbers from 0 to ``n - 1``."""

    n: int


@dataclass(frozen=True)
class BoxList:
    """A box for each item of a tensor's last dimension."""

    boxes: tuple[CategoricalBox | BoxList, ...]

    def __iter__(self) -> Iterator[CategoricalBox | BoxList]:
        return iter(self.boxes)

    def __len__(self) -> int:
        return len(self.boxes)

    def __repr__(self) -> str:
        return f"BoxList(boxes={[*self.boxes]})"


@dataclass(frozen=True, eq=False)
class ContinuousBox:
    """The values between two bounds, which belong to it."""

    # low: the lowest values `[*shape]`, of the spec's dtype; may be infinite.
    # high: the highest values `[*shape]`.

    low: torch.Tensor
    high: torch.Tensor

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ContinuousBox)
            and _equal(self.low, other.low)
            and _equal(self.high, other.high)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ContinuousBox(\n    low={_summary(self.low)},\n    high={_summary(self.high)})"


@dataclass(frozen=True)
class TextBox:
    """Texts of some characters."""

    min_length: int
    max_length: int
    characters: frozenset[str]

    @property
    def example(self) -> str:
        """A text of the smallest length."""
        return min(self.characters, default="") * self.min_length

    def __contains__(self, value: object) -> bool:
        return (
            isinstance(value, str)
            and self.min_length <= len(value) <= self.max_length
            and self.characters.issuperset(value)
        )


ValueSpace = CategoricalBox | BoxList | ContinuousBox | TextBox


def _equal(first: torch.Tensor, second: torch.Tensor) -> bool:
    same = first.device == second.device and first.dtype == second.dtype
    return same and torch.equal(first, second)


def _summary(tensor: torch.Tensor) -> str:
    return (
        f"Tensor(shape={tensor.shape}, device={tensor.device}, dtype={tensor.dtype}, "
        f"contiguous={tensor.is_contiguous()})"
    )
