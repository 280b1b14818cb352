"""A transform: a function from batch to batch, and what it does to rows that are written."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from tensordict import TensorDict

from datasets_cli.errors import UsageError
from datasets_cli.replay.torchrl_words import KEYS, takes

TransformLike = Callable[[TensorDict], TensorDict]
"""Any callable from batch to batch: a ``Transform``, one of TorchRL's, or a function."""


@takes(**KEYS)
@runtime_checkable
class Transform(Protocol):
    """A function from batch to batch, which may also have a say in what a buffer stores.

    A transform of your own derives from this class and writes ``__call__``. It may add entries to
    the batch and take some from it, since a batch belongs to whoever sampled it. Ours make new
    tensors rather than change the batch's own.

    Any other callable is taken where a transform is: ``as_transform`` adds what it does not have.

    Attributes:
        needs_steps: whether it acts on steps in a row, ``[*B, T]``, which no rows drawn one by one
            are.
        only_writes: whether it acts on what is written alone, and so not on a dataset.
    """

    needs_steps: bool = False
    only_writes: bool = False

    def __init__(self) -> None:
        """Take what TorchRL's class takes."""
        return

    @abstractmethod  # or a class without it would make an object that returns None
    def __call__(self, batch: TensorDict, /) -> TensorDict:
        """Return the batch transformed."""

    def inv(self, data: TensorDict, /) -> TensorDict | None:
        """Return what is to be stored for the rows ``data``, which it must not change.

        None means that there is nothing to store yet.
        """
        return data

    def undo_inv(self) -> None:
        """Be as before the last ``inv``: what it returned could not be stored."""
        return

    def on_clear(self) -> None:
        """Let go of rows that the transform keeps back: those of the buffer are gone too."""
        return


class StepTransform(Transform):
    """A transform that acts on steps in a row."""

    needs_steps = True


class CallableTransform(Transform):
    """A callable as a whole transform; members that it does not have do nothing."""

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
    """Return a callable as a transform that has all members."""
    if not callable(transform):
        raise UsageError(f"A transform is called with a batch; {transform!r} cannot be called.")
    return transform if isinstance(transform, Transform) else CallableTransform(transform)


class Inverted(Transform):
    """A transform the other way round: it acts on what is written, its ``inv`` on batches."""

    def __init__(self, transform: TransformLike) -> None:
        self.transform = as_transform(transform)

    def __call__(self, batch: TensorDict) -> TensorDict:
        inverted = self.transform.inv(batch)
        return batch if inverted is None else inverted

    def inv(self, data: TensorDict) -> TensorDict:
        return self.transform(data.clone(recurse=False))

    def on_clear(self) -> None:
        self.transform.on_clear()
