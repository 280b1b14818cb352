"""Values that are not tensors, such as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from tensordict import NonTensorData

from datasets_cli.errors import UsageError
from datasets_cli.replay.torchrl_words import Word, takes
from datasets_cli.specs.arguments import ShapeLike, known_device
from datasets_cli.specs.spec import TensorSpec

ONE_VALUE = "A batch of the example is one value, not a stack of them."


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


@takes(batched=Word(None, (False,), ONE_VALUE), feature_dims=Word(None, instead=ONE_VALUE))
class NonTensor(TensorSpec):
    """Values of any type.

    Args:
        shape: of a value.
        device: where a TensorDict says that they are.
        dtype: None; values have no element type.
        example_data: what ``rand``, ``zero`` and ``one`` give.
        space: which texts there are; values of any type where None.

    Raises:
        UsageError: an element type is given, or the example is not in the space.
    """

    def __init__(
        self,
        shape: ShapeLike = (1,),
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
        example_data: Any = None,
        *,
        space: TextBox | None = None,
    ) -> None:
        if dtype is not None:
            raise UsageError(f"A NonTensor has no element type; found {dtype}.")
        super().__init__(shape, None, device)
        self.space: Any = space
        self.device = None if device is None else known_device(device)
        self.dtype = self.domain = None
        is_left_out = space is not None and example_data is None
        self.example_data = space.example if space and is_left_out else example_data
        if space is not None and self.example_data not in space:
            raise UsageError(f"The example {example_data!r} is not one of {space}.")

    def rand(self, shape: ShapeLike | None = None) -> NonTensorData:
        """Return the example, as a batch ``[*shape, *self.shape]``."""
        size = self._size(shape)
        return NonTensorData(self.example_data, batch_size=size, device=self.device)

    zero = one = rand

    def is_in(self, value: Any) -> bool:
        """Return whether a value, or each of a batch of them, is in the space."""
        return self.space is None or all(each in self.space for each in _leaves(value))

    def type_check(self, value: Any, key: Any = None) -> None:
        """Return None: values have no element type."""

    def project(self, value: Any) -> Any:
        """Return the value where it is in the space.

        Raises:
            UsageError: it is not: no text is near another one.
        """
        if not self.is_in(value):
            raise UsageError(f"{value!r} is not one of {self.space}, and no text is near another.")
        return value

    def encode(self, value: Any, *, ignore_device: bool = False) -> Any:
        """Return the value as data of a TensorDict, of this shape."""
        if isinstance(value, torch.Tensor | NonTensorData):
            return value
        device = None if ignore_device else self.device
        return NonTensorData(value, batch_size=self.shape, device=device)

    def to_numpy(self, value: Any, safe: bool | None = None) -> Any:
        """Return the value as an environment takes it, without what a TensorDict puts around it."""
        if safe:
            self.assert_is_in(value)
        return _plain(value)

    def to(self, destination: str | torch.device | torch.dtype | None) -> NonTensor:
        """Return this spec on a device; an element type changes nothing."""
        if destination is None or isinstance(destination, torch.dtype):
            return self
        return self._like_this(device=known_device(destination))

    def _has_values_of(self, other: Any) -> bool:
        return bool(self.space == other.space and self.example_data == other.example_data)

    def _lines(self) -> list[str]:
        return [*super()._lines(), f"example_data={self.example_data}"]


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def _leaves(value: Any) -> list[Any]:
    plain = _plain(value)
    if not isinstance(plain, list):
        return [plain]
    return [leaf for each in plain for leaf in _leaves(each)]
