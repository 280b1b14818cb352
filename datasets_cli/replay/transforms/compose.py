"""Compose: several transforms as one."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from copy import copy
from typing import overload

from tensordict import TensorDict

from datasets_cli.errors import UsageError
from datasets_cli.replay.torchrl_words import KEYS, takes
from datasets_cli.replay.transforms.transform import (
    CallableTransform,
    Inverted,
    Transform,
    TransformLike,
    as_transform,
)


@takes(**KEYS)
class Compose(Transform):
    """Applies transforms one after the other; their inverses the other way round.

    Args:
        transforms: any callables from batch to batch, TorchRL's among them; also as one list.

    Raises:
        UsageError: one cannot be called.
    """

    def __init__(self, *transforms: TransformLike | Iterable[TransformLike]) -> None:
        self.steps: list[Transform] = []
        self._inverted: list[Transform] = []  # those whose ``inv`` the last write has called
        for one in transforms:
            several = one if isinstance(one, list | tuple) and len(transforms) == 1 else [one]
            self.steps += map(as_transform, several)

    @property
    def transforms(self) -> list[TransformLike]:
        """The transforms that were given."""
        return [_given(step) for step in self.steps]

    def __call__(self, batch: TensorDict) -> TensorDict:
        for step in self.steps:
            batch = step(batch)
            if batch is None:
                raise UsageError(f"The transform {step!r} returned None; expected a batch.")
        return batch

    def inv(self, data: TensorDict) -> TensorDict | None:
        stored: TensorDict | None = data
        self._inverted.clear()
        for step in reversed(self.steps):
            if stored is None:
                break
            try:
                stored = step.inv(stored)
            except BaseException:
                self.undo_inv()
                raise
            self._inverted.append(step)
        return stored

    def undo_inv(self) -> None:
        for step in self._inverted:
            step.undo_inv()
        self._inverted.clear()

    def on_clear(self) -> None:
        for step in self.steps:
            step.on_clear()

    def append(self, transform: TransformLike) -> None:
        """Apply one more transform after the others."""
        self.steps.append(as_transform(transform))

    def insert(self, index: int, transform: TransformLike) -> None:
        """Apply one more transform before the one at ``index``."""
        self.steps.insert(index, as_transform(transform))

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[TransformLike]:
        return iter(self.transforms)

    @overload
    def __getitem__(self, index: int) -> TransformLike: ...
    @overload
    def __getitem__(self, index: slice) -> Compose: ...
    def __getitem__(self, index: int | slice) -> TransformLike | Compose:
        """Return one of the transforms that were given, or some of them as one."""
        if isinstance(index, slice):
            several = copy(self)
            several.steps, several._inverted = self.steps[index], []
            return several
        return _given(self.steps[index])

    def __repr__(self) -> str:
        steps = ",".join(textwrap.indent(f"\n{step!r}", "    ") for step in self.steps)
        return f"Compose({steps})"


def _given(step: Transform) -> TransformLike:
    """Return the transform that was given to ``as_transform``."""
    return step.function if isinstance(step, CallableTransform) else step


def parts_of(transform: Transform, inverted: bool = False) -> Iterator[tuple[Transform, bool]]:
    """Yield the transforms that one is made of, and whether each acts the other way round."""
    if isinstance(transform, Inverted):
        yield from parts_of(transform.transform, not inverted)
    for step in transform.steps if isinstance(transform, Compose) else ():
        yield from parts_of(step, inverted)
    if not isinstance(transform, Inverted | Compose):
        yield transform, inverted
