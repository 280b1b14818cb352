"""A transform: a function from batch to batch, and in some cases its inverse."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
from tensordict import TensorDict

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import NestedKeys, keys_of
from datasets_cli.store.schema.columns import Key, show_key


class Transform(Protocol):
    """Any callable from batch to batch.

    It may add entries to the batch and take some from it, since a batch belongs to whoever sampled
    it. Ours make new tensors rather than change the batch's own.
    """

    @abstractmethod  # or a class without it would make an object that returns None
    def __call__(self, batch: TensorDict, /) -> TensorDict:
        """Return the batch transformed."""


@runtime_checkable
class Invertible(Protocol):
    """A transform that also has a say in what a buffer stores.

    TorchRL's transforms are such, and can be used unchanged.
    """

    def __call__(self, batch: TensorDict, /) -> TensorDict:
        """Return the batch that was read, transformed."""

    def inv(self, data: TensorDict, /) -> TensorDict | None:
        """Return what is to be stored for the rows ``data``, which stay as they are, or None."""


def inverse(transform: Transform, data: TensorDict) -> TensorDict | None:
    """Return what is to be stored: the transform's inverse of ``data``, or that where it has none.

    None means that there is nothing to store yet.
    """
    return transform.inv(data) if isinstance(transform, Invertible) else data


class KeyMap:
    """Which entries of a batch are read, and where what is made of them goes.

    Args:
        owner: the transform's name, for messages.
        in_keys: one key or several.
        out_keys: as many; the same keys where None.

    Raises:
        UsageError: there are not as many.
    """

    def __init__(self, owner: str, in_keys: NestedKeys, out_keys: NestedKeys | None = None) -> None:
        self.owner = owner
        self.in_keys = keys_of(in_keys)
        self.out_keys = self.in_keys if out_keys is None else keys_of(out_keys)
        if len(self.in_keys) != len(self.out_keys):
            raise UsageError(
                f"{owner} needs an out_key for each in_key; found {len(self.in_keys)} and "
                f"{len(self.out_keys)}."
            )

    @property
    def pairs(self) -> list[tuple[Key, Key]]:
        """Each key that is read, and the one that its result goes to."""
        return list(zip(self.in_keys, self.out_keys, strict=True))

    def apply(
        self, batch: TensorDict, function: Callable[[torch.Tensor], torch.Tensor]
    ) -> TensorDict:
        """Put the function of each entry into the batch, and return that."""
        for source, target in self.pairs:
            batch.set(target, function(entry(batch, source, self.owner)))
        return batch


def entry(batch: TensorDict, key: Key, owner: str) -> torch.Tensor:
    """Return an entry of a batch.

    Raises:
        UsageError: there is none; the message names the transform that wants it.
    """
    found: Any = batch.get(key, None)
    if found is None:
        keys = sorted(
            show_key((name,) if isinstance(name, str) else name)
            for name in batch.keys(include_nested=True, leaves_only=True)
        )
        raise UsageError(
            f"{owner} needs {show_key(key)}, which the batch does not have. It has: "
            f"{', '.join(keys)}."
        )
    return found  # type: ignore[no-any-return]


class Inverted:
    """A transform the other way round: it acts on what is written, its ``inv`` on batches.

    Args:
        transform: any callable from batch to batch; without ``inv`` batches stay as they are.
    """

    def __init__(self, transform: Transform) -> None:
        self.transform = transform

    def __call__(self, batch: TensorDict) -> TensorDict:
        """Return the inverse of a batch that was read."""
        inverted = inverse(self.transform, batch)
        return batch if inverted is None else inverted

    def inv(self, data: TensorDict) -> TensorDict:
        """Return what is to be stored for rows; they stay as they are."""
        return self.transform(data.clone(recurse=False))
