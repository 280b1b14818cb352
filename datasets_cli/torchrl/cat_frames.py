"""CatFrames with TorchRL's arguments, and the sampler that makes its stacks of single steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from datasets_cli.errors import UsageError
from datasets_cli.options import takes_fields
from datasets_cli.replay.draws.draw import Uniform
from datasets_cli.replay.draws.slices import SliceOptions, Slices
from datasets_cli.replay.nested_keys import NestedKey, NestedKeys
from datasets_cli.replay.transforms.frames import StackedSlices, StackedSteps, StackPadding
from datasets_cli.torchrl.slicing_arguments import TrajectoryArguments


@dataclass(frozen=True)
class StackArguments(TrajectoryArguments):
    """What ``make_rb_transform_and_sampler`` takes.

    Args:
        batch_size: rows in a batch, as the buffer is told, too; that counts.
        truncated_key: where the last step of each slice is marked. Nothing is by default: a step
            ends no trajectory because its stack ends with it.
        init_key: where the first step of each slice is marked; nothing is by default.
        strict_length: True; a stack is made of a whole slice.
        pad_output: False.
        span: False.
    """

    batch_size: int
    _: KW_ONLY
    truncated_key: NestedKey | None = None
    init_key: NestedKey | None = None
    strict_length: bool = True


class SlicePerRow(Slices):
    """Draws a slice for each row of a batch."""

    def __init__(self, **slices: Any) -> None:
        super().__init__(Uniform(), **slices)
        self.tells_ahead = False  # a batch has more rows than it is asked for

    @property
    def kind(self) -> str:
        """The way of drawing."""
        return "a uniform slice for each row"

    def shape(self, batch_size: int) -> tuple[int, int]:
        """Return how many slices of how many rows a batch is made of."""
        assert self.slice_len is not None
        return batch_size, self.slice_len


class CatFrames(StackedSteps):
    """Joins each entry with those of the N - 1 steps before it in its trajectory, oldest first.

    The batch is steps in a row, ``[*B, T]``: a trajectory begins with the batch and after each
    ``("next", "done")``. An entry below ``"next"`` whose own entry is among ``in_keys`` too is
    stacked as the step after: the newest steps of that stack, and the successor after them.

    ``FrameStack`` does the same to a dataset as it is read, for single rows, from the first step of
    a trajectory on; this transform needs the steps before a row in the batch.

    Args:
        N: steps in a stack, from 1 on.
        dim: the dimension along which they are joined; negative, counted from the entry's last.
        in_keys: entries that are read; ``"pixels"`` by default.
        out_keys: where the stacks go; ``in_keys`` by default.
        padding: what is before a trajectory's first step: that step again (``"same"``), or
            ``padding_value`` (``"constant"``).
        padding_value: that value.
        as_inverse: stack what is written, rather than what is read.
        reset_key: given for compatibility; only environments are reset.
        done_key: the flag below ``"next"`` that ends a trajectory; ``"done"`` by default.
        future: stack each step and the N - 1 after it instead; the end of a trajectory is padded.
        mask_key: where bool ``[*B, T, N]`` goes, True for a step of a stack that is padding.

    Raises:
        UsageError: an argument is out of range, or there are not as many keys out as in.
    """

    def __init__(
        self,
        N: int,  # noqa: N803 (TorchRL's name)
        dim: int,
        in_keys: NestedKeys | None = None,
        out_keys: NestedKeys | None = None,
        padding: StackPadding = "same",
        padding_value: float = 0,
        as_inverse: bool = False,
        reset_key: NestedKey | None = None,
        done_key: NestedKey | None = None,
        future: bool = False,
        mask_key: NestedKey | None = None,
    ) -> None:
        super().__init__(
            N,
            dim,
            ["pixels"] if in_keys is None else in_keys,
            out_keys,
            padding=padding,
            padding_value=padding_value,
            as_inverse=as_inverse,
            done_key="done" if done_key is None else done_key,
            future=future,
            mask_key=mask_key,
        )

    @takes_fields(StackArguments)
    def make_rb_transform_and_sampler(
        self, arguments: StackArguments
    ) -> tuple[StackedSlices, SlicePerRow]:
        """Return a transform and a sampler that stack steps of a buffer which stores single ones.

        The sampler draws a slice of N steps for each row of a batch, and the transform leaves its
        last step, with stacks at ``out_keys`` and below ``"next"``. So a row has N - 1 steps of its
        trajectory before it. When rows are written, the transform drops ``out_keys``.

        >>> transform, sampler = CatFrames(
        ...     N=4, dim=-1, in_keys=["observation"], out_keys=["stack"]
        ... ).make_rb_transform_and_sampler(batch_size=32)

        Raises:
            TypeError: more than one way to say where trajectories are.
            UsageError: an argument would make slices of another length than N.
        """
        span = arguments.span
        sides = span if isinstance(span, Sequence) else (span,)
        if not arguments.strict_length or arguments.pad_output or any(sides):
            raise UsageError(
                f"A stack is made of a whole slice of {self.N} steps; strict_length=False, "
                "pad_output and span would cut it. FrameStack(storage, n) also gives the first "
                "rows of a trajectory."
            )
        slices = arguments.slices(SliceOptions(slice_len=self.N))
        return StackedSlices(self), SlicePerRow(**slices)
