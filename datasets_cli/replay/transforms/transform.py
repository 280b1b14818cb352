"""A transform: a function of batches, and its inverse for rows that are written."""

from __future__ import annotations

import textwrap
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from typing import Protocol, overload, runtime_checkable

import torch
from tensordict import TensorDict

from datasets_cli.errors import UnknownKey, UsageError, WrongSize, wrong_value
from datasets_cli.replay.arguments import NestedKeys, key_of, keys_of
from datasets_cli.schema.columns import Key, refuse_missing_reward, show_key
from datasets_cli.schema.tree import entry
from datasets_cli.torchrl.keywords import accepts_keywords

TransformLike = Callable[[TensorDict], TensorDict]
"""Any callable from batch to batch: a ``Transform``, one of TorchRL's, or a function."""


@accepts_keywords
@runtime_checkable
class Transform(Protocol):
    """A function from batch to batch, whose ``inv`` may change the rows that a buffer stores.

    A transform of your own derives from this class and defines ``__call__``. It may add and remove
    entries of the batch: each batch is a copy. The transforms of this package compute new tensors
    and leave the tensors of the batch unchanged.

    Any other callable is accepted too: ``as_transform`` adds the missing members.

    Attributes:
        needs_steps: whether it acts on steps in a row, ``[*B, T]``; rows drawn one by one are not.
        only_writes: whether it acts only on written rows, and so never on a dataset.
    """

    needs_steps: bool = False
    only_writes: bool = False

    def __init__(self) -> None:
        """Accept the arguments of TorchRL's class."""
        return

    @abstractmethod  # or a class without it would make an object that returns None
    def __call__(self, batch: TensorDict, /) -> TensorDict:
        """Return the batch transformed."""

    def inv(self, data: TensorDict, /) -> TensorDict | None:
        """Return the rows to store in place of ``data``, which stays unchanged.

        None means that nothing is stored yet.
        """
        return data

    def undo_inv(self) -> None:
        """Restore the state before the last ``inv``, whose rows could not be stored."""
        return

    def on_clear(self) -> None:
        """Drop the rows that the transform holds back, because the buffer was emptied."""
        return


class StepTransform(Transform):
    """A transform that acts on steps in a row."""

    needs_steps = True


class CallableTransform(Transform):
    """A callable as a transform; members that it lacks do nothing."""

    # TorchRL's transforms have `inv`, and can be used unchanged.

    def __init__(self, function: TransformLike) -> None:
        self.function = function

    def __call__(self, batch: TensorDict) -> TensorDict:
        return self.function(batch)

    def inv(self, data: TensorDict) -> TensorDict | None:
        stored: TensorDict | None = getattr(self.function, "inv", super().inv)(data)
        return stored

    def undo_inv(self) -> None:
        getattr(self.function, "undo_inv", super().undo_inv)()

    def on_clear(self) -> None:
        getattr(self.function, "on_clear", super().on_clear)()

    def __repr__(self) -> str:
        return repr(self.function)


def as_transform(transform: TransformLike) -> Transform:
    """Return a callable as a transform with all members."""
    if not callable(transform):
        raise wrong_value("transform", "a function from batch to batch", transform)
    return transform if isinstance(transform, Transform) else CallableTransform(transform)


class Inverted(Transform):
    """A transform with its directions swapped: written rows are transformed, batches inverted."""

    def __init__(self, transform: TransformLike) -> None:
        self.transform = as_transform(transform)

    def __call__(self, batch: TensorDict) -> TensorDict:
        inverted = self.transform.inv(batch)
        return batch if inverted is None else inverted

    def inv(self, data: TensorDict) -> TensorDict:
        return self.transform(data.clone(recurse=False))

    def on_clear(self) -> None:
        self.transform.on_clear()


@accepts_keywords
class Compose(Transform):
    """Applies transforms in order, and their inverses in reverse order.

    Args:
        transforms: callables from batch to batch, such as TorchRL's transforms; also one list.

    Raises:
        UsageError: a transform cannot be called.
    """

    def __init__(self, *transforms: TransformLike | Iterable[TransformLike]) -> None:
        self.steps: list[Transform] = []
        self._inverted: list[Transform] = []  # steps whose ``inv`` the last write has called
        for one in transforms:
            several = one if isinstance(one, list | tuple) and len(transforms) == 1 else [one]
            self.steps += map(as_transform, several)

    @property
    def transforms(self) -> list[TransformLike]:
        """The transforms as the caller passed them."""
        return [_unwrapped(step) for step in self.steps]

    def __call__(self, batch: TensorDict) -> TensorDict:
        for step in self.steps:
            batch = step(batch)
            if batch is None:
                raise UsageError(
                    f"The transform {step!r} returned None; expected a batch.", expected="a batch"
                )
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
        """Append a transform."""
        self.steps.append(as_transform(transform))

    def insert(self, index: int, transform: TransformLike) -> None:
        """Insert a transform before the transform at ``index``."""
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
        """Return a transform, or a slice of the transforms as a ``Compose``."""
        if isinstance(index, slice):
            several = copy(self)
            several.steps, several._inverted = self.steps[index], []
            return several
        return _unwrapped(self.steps[index])

    def __repr__(self) -> str:
        steps = ",".join(textwrap.indent(f"\n{step!r}", "    ") for step in self.steps)
        return f"Compose({steps})"


def _unwrapped(step: Transform) -> TransformLike:
    """Return the argument of ``as_transform``."""
    return step.function if isinstance(step, CallableTransform) else step


def parts_of(transform: Transform, inverted: bool = False) -> Iterator[tuple[Transform, bool]]:
    """Yield the parts of a transform, and whether the directions of each are swapped."""
    if isinstance(transform, Inverted):
        yield from parts_of(transform.transform, not inverted)
    for step in transform.steps if isinstance(transform, Compose) else ():
        yield from parts_of(step, inverted)
    if not isinstance(transform, Inverted | Compose):
        yield transform, inverted


class KeyMap:
    """The keys that a transform reads, each with the key of its result."""

    def __init__(self, owner: str, in_keys: NestedKeys, out_keys: NestedKeys | None = None) -> None:
        self.owner = owner
        self.in_keys = keys_of(in_keys)
        self.out_keys = self.in_keys if out_keys is None else keys_of(out_keys)
        if len(self.in_keys) != len(self.out_keys):
            raise WrongSize(
                f"{owner}: found {len(self.out_keys)} out_keys for {len(self.in_keys)} in_keys; "
                "expected as many.",
                argument="out_keys",
                expected=len(self.in_keys),
                found=len(self.out_keys),
            )

    @property
    def pairs(self) -> list[tuple[Key, Key]]:
        """Pairs of in_key and out_key."""
        return list(zip(self.in_keys, self.out_keys, strict=True))

    def apply(
        self, batch: TensorDict, function: Callable[[torch.Tensor], torch.Tensor]
    ) -> TensorDict:
        """Set the function of each entry in the batch, and return the batch."""
        for source, target in self.pairs:
            batch.set(target, function(required_entry(batch, source, self.owner)))
        return batch


def stored_map(
    owner: str, in_keys_inv: NestedKeys | None, out_keys_inv: NestedKeys | None
) -> KeyMap:
    """Return the key map of ``inv``: from the keys of written rows to the keys of stored rows."""
    stored = in_keys_inv or []
    return KeyMap(owner, out_keys_inv or stored, stored)


def required_entry(batch: TensorDict, key: Key, owner: str) -> torch.Tensor:
    """Return an entry of a batch."""
    try:
        value: torch.Tensor | None = entry(batch, key)
    except AttributeError:  # a leaf where the key has a group
        value = None
    if value is None:
        refuse_missing_reward(key, owner, "the batch")
        names = batch.keys(include_nested=True, leaves_only=True)
        keys = sorted(show_key(key_of(name)) for name in names)
        raise UnknownKey(
            f"{owner} needs {show_key(key)}, which the batch does not have. It has: "
            f"{', '.join(keys)}.",
            key=key,
            found=keys,
        )
    return value
