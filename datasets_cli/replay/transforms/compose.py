"""Compose: several transforms as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import overload

from tensordict import TensorDict

from datasets_cli.errors import UsageError
from datasets_cli.replay.transforms.transform import Transform, inverse


class Compose:
    """Applies transforms one after the other; their inverses the other way round.

    Args:
        transforms: any callables from batch to batch, TorchRL's among them; also as one list.

    Raises:
        UsageError: one cannot be called.
    """

    def __init__(self, *transforms: Transform | Iterable[Transform]) -> None:
        several = transforms
        if len(transforms) == 1 and isinstance(transforms[0], list | tuple):
            several = tuple(transforms[0])
        self.transforms: list[Transform] = [_callable(transform) for transform in several]

    def __call__(self, batch: TensorDict) -> TensorDict:
        """Return the batch after every transform.

        Raises:
            UsageError: a transform returned None.
        """
        for transform in self.transforms:
            batch = transform(batch)
            if batch is None:
                raise UsageError(f"The transform {transform!r} returned None; expected a batch.")
        return batch

    def inv(self, data: TensorDict) -> TensorDict | None:
        """Return what is to be stored for ``data``, or None for nothing yet."""
        stored: TensorDict | None = data
        for transform in reversed(self.transforms):
            stored = None if stored is None else inverse(transform, stored)
        return stored

    def on_clear(self) -> None:
        """Let go of rows that a transform keeps back."""
        for transform in self.transforms:
            if on_clear := getattr(transform, "on_clear", None):
                on_clear()

    def append(self, transform: Transform) -> None:
        """Apply one more transform after the others."""
        self.transforms.append(_callable(transform))

    def insert(self, index: int, transform: Transform) -> None:
        """Apply one more transform before the one at ``index``."""
        self.transforms.insert(index, _callable(transform))

    def __len__(self) -> int:
        return len(self.transforms)

    def __iter__(self) -> Iterator[Transform]:
        return iter(self.transforms)

    @overload
    def __getitem__(self, index: int) -> Transform: ...
    @overload
    def __getitem__(self, index: slice) -> Compose: ...
    def __getitem__(self, index: int | slice) -> Transform | Compose:
        """Return one transform, or some of them as one."""
        found = self.transforms[index]
        return Compose(found) if isinstance(found, list) else found

    def __repr__(self) -> str:
        return f"Compose({', '.join(map(repr, self.transforms))})"


def _callable(transform: object) -> Transform:
    if not callable(transform):
        raise UsageError(f"A transform is called with a batch; {transform!r} cannot be called.")
    return transform
