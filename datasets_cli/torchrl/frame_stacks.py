"""Frame stacks of steps in a row: each entry becomes the last N steps of its trajectory, joined.

N = 3, T = 6      a b c|d e f                     trajectories begin with a and with d
at c              a b c
at d, "same"      d d d       "constant"  . . d   . is the padding value
next, at d        d d e                   . d e   the entry at d, then its successor
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass
from typing import Literal, Self, get_args

import torch
from tensordict import TensorDict

from datasets_cli.core.options import check_choice, takes_fields
from datasets_cli.errors import Unsupported, WrongRows, WrongSize, wrong_value
from datasets_cli.replay.arguments import NestedKey, NestedKeys, key_of, optional_key, whole_number
from datasets_cli.replay.samplers.slices import SliceOptions
from datasets_cli.replay.trajectories.bounds import first_of, last_of
from datasets_cli.replay.transforms.steps import flags
from datasets_cli.replay.transforms.transform import KeyMap, StepTransform, required_entry
from datasets_cli.schema.columns import Key, show_key
from datasets_cli.schema.shapes import StepFlags
from datasets_cli.torchrl.slice_samplers import SlicePerRow, SliceSampler, TrajectoryArguments

StackPadding = Literal["same", "constant"]


@dataclass(frozen=True)
class _Windows:
    """The steps of each stack."""

    # row: the number of the first step of each row of the flattened batch, int64 `[*B, 1, 1]`.
    # steps: the steps to read, int64 `[*B, t, N]`.
    # edge: the first (or last) step of their trajectory, int64 `[*B, t, 1]`.
    # padded: True for steps beyond the edge, bool `[*B, t, N]`.
    # wanted: the steps before they are clipped at the edge, int64 `[t, N]`.

    row: torch.Tensor
    steps: torch.Tensor
    edge: torch.Tensor
    padded: torch.Tensor
    wanted: torch.Tensor

    def stacks(
        self, value: torch.Tensor, first: torch.Tensor | None, padding: StackPadding, fill: float
    ) -> torch.Tensor:
        """Return ``[*B, t, N, ...]`` of an entry ``[*B, T, ...]``."""
        ndim = self.steps.ndim - 1
        # Numbers of steps in the flattened batch `[B * T, ...]`.
        rows = self.row + self.steps
        stack: torch.Tensor = value.flatten(0, ndim - 1).index_select(0, rows.flatten())
        stack = stack.view(*rows.shape, *value.shape[ndim:])
        padded = self.padded
        if first is not None:  # a stack of successors continues with the entry of the first step
            edge = (self.row + self.edge).expand(padded.shape)[padded]
            stack[padded] = first.flatten(0, ndim - 1)[edge]
            padded = self.wanted < self.edge - 1
        if padding == "same":
            return stack
        return torch.where(padded.view(*padded.shape, *[1] * (value.ndim - ndim)), fill, stack)


def _windows_of(ends: StepFlags, size: int, when: slice, *, future: bool) -> _Windows:
    """Return the steps of the stack of each step."""
    # ends: True for the last step of a trajectory.
    #   time       0 1 2|3 4 5        N = 3, trajectories begin at 0 and 3
    #   wanted     at 4: 2 3 4        edge 3
    #   steps      at 4: 3 3 4        clipped at the edge
    #   padded     at 4: x . .
    time = ends.shape[-1]
    offsets = torch.arange(size, device=ends.device) - (0 if future else size - 1)
    wanted = torch.arange(time, device=ends.device)[when].unsqueeze(1) + offsets
    edge = (last_of(ends) if future else first_of(ends))[..., when].unsqueeze(-1)
    steps = torch.minimum(wanted, edge) if future else torch.maximum(wanted, edge)
    row = torch.arange(ends[..., 0].numel(), device=ends.device) * time
    return _Windows(row.view(*ends.shape[:-1], 1, 1), steps, edge, wanted != steps, wanted)


@dataclass(frozen=True)
class StackArguments(TrajectoryArguments):
    """The arguments of ``make_rb_transform_and_sampler``.

    Args:
        batch_size: rows in a batch; the batch size of the buffer counts.
        truncated_key: the flag that is set in the last step of each slice. None, the default, sets
            nothing: the end of a stack is not the end of a trajectory.
        init_key: the flag that is set in the first step of each slice; None by default.
        strict_length: True; a stack needs a whole slice.
        pad_output: False.
        span: False.
    """

    batch_size: int
    _: KW_ONLY
    truncated_key: NestedKey | None = None
    init_key: NestedKey | None = None
    strict_length: bool = True


class CatFrames(StepTransform):
    """Concatenates each entry with the N - 1 previous steps of its trajectory, oldest first.

    The batch holds consecutive steps, ``[*B, T]``. A trajectory begins at the start of the batch
    and after each ``("next", "done")``. An entry below ``"next"`` whose root entry is also in
    ``in_keys`` is stacked as the next step: the newest steps of that stack, then the successor.

    ``FrameStack`` stacks the frames of a dataset while reading, for single rows and from the first
    step of a trajectory; this transform needs the previous steps in the batch.

    Args:
        N: steps in a stack, at least 1.
        dim: the dimension of the concatenation; negative, counted from the last of the entry.
        in_keys: entries to read; ``"pixels"`` by default.
        out_keys: entries of the stacks; ``in_keys`` by default.
        padding: the padding before the first step of a trajectory: that step (``"same"``), or
            ``padding_value`` (``"constant"``).
        padding_value: the value of constant padding.
        as_inverse: stack rows when they are written instead of batches.
        reset_key: ignored; only environments are reset.
        done_key: the flag below ``"next"`` that ends a trajectory; ``"done"`` by default.
        future: stack each step with the N - 1 next steps; the end of a trajectory is padded.
        mask_key: the entry for bool ``[*B, T, N]``, True for padding.

    Raises:
        UsageError: an argument is out of range, or ``in_keys`` and ``out_keys`` differ in length.
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
        self.N = whole_number("N", N, 1)
        self.dim = whole_number("dim", dim)
        if self.dim >= 0:
            raise wrong_value("dim", "a negative dim", dim)
        check_choice("padding", padding, get_args(StackPadding))
        self.padding = padding
        self.padding_value = padding_value
        self.as_inverse = self.only_writes = as_inverse
        self.future = future
        self.mask_key = optional_key(mask_key)
        self._done = ("next", *key_of("done" if done_key is None else done_key))
        self._keys = KeyMap(self._name, ["pixels"] if in_keys is None else in_keys, out_keys)

    def __call__(self, batch: TensorDict) -> TensorDict:
        """Set the stacks in the batch ``[*B, T]``, and return it."""
        return batch if self.as_inverse else batch.update(self._stacks(batch, slice(None)))

    def inv(self, data: TensorDict) -> TensorDict:
        return data.copy().update(self._stacks(data, slice(None))) if self.as_inverse else data

    def with_successors(self) -> Self:
        """Return a copy that also stacks the successor below ``"next"`` of every entry."""
        pairs = self._keys.pairs
        pairs += [
            (("next", *source), ("next", *target))
            for source, target in pairs
            if source[0] != "next" and ("next", *source) not in self._keys.in_keys
        ]
        whole = copy(self)
        whole._keys = KeyMap(
            self._name, [source for source, _ in pairs], [target for _, target in pairs]
        )
        return whole

    @property
    def _name(self) -> str:
        """The public name of the transform, for messages."""
        return type(self).__name__

    @property
    def out_keys(self) -> list[Key]:
        """Keys of the stacks."""
        return self._keys.out_keys

    def __repr__(self) -> str:
        return f"{self._name}(N={self.N}, dim={self.dim}, in_keys={self._keys.in_keys})"

    def _stacks(self, batch: TensorDict, when: slice) -> TensorDict:
        """Return the stacks ``[*B, t, ...]`` of the steps ``when``, and their mask."""
        ends = flags(batch, self._done, self._name)
        windows = _windows_of(ends, self.N, when, future=self.future)
        stacks = TensorDict({}, windows.padded.shape[:-1])
        for source, target in self._keys.pairs:
            owner = source[1:] if source[0] == "next" and not self.future else ()
            first = (
                required_entry(batch, owner, self._name) if owner in self._keys.in_keys else None
            )
            value = required_entry(batch, source, self._name)
            place = value.ndim + self.dim
            if place < batch.ndim:
                raise WrongRows(
                    f"{self._name} cannot join {show_key(source)} along dim {self.dim}: its shape "
                    f"{list(value.shape)} has {value.ndim - batch.ndim} dimensions besides the "
                    f"batch {list(batch.batch_size)}.",
                    key=source,
                    expected=f"{-self.dim} dimensions or more",
                    found=list(value.shape),
                    advice="Use UnsqueezeTransform before.",
                )
            stack = windows.stacks(value, first, self.padding, self.padding_value)
            stacks[target] = stack.movedim(batch.ndim, place).flatten(place, place + 1)
        if self.mask_key is not None:
            stacks[self.mask_key] = windows.padded
        return stacks

    @takes_fields(StackArguments, documented_by=SliceSampler)
    def make_rb_transform_and_sampler(
        self, arguments: StackArguments
    ) -> tuple[StackedSlices, SlicePerRow]:
        """Return a transform and a sampler that stack steps of a buffer of single steps.

        The sampler draws a slice of N steps for each row of a batch. The transform reduces it to
        its last step, with stacks at ``out_keys`` and below ``"next"``. The first N - 1 steps of a
        trajectory are therefore not drawn. When rows are written, the transform drops ``out_keys``.

        >>> transform, sampler = CatFrames(
        ...     N=4, dim=-1, in_keys=["observation"], out_keys=["stack"]
        ... ).make_rb_transform_and_sampler(batch_size=32)

        Raises:
            TypeError: more than one argument defines the trajectories.
            UsageError: an argument would cut slices to another length than N.
        """
        span = arguments.span
        sides = span if isinstance(span, Sequence) else (span,)
        if not arguments.strict_length or arguments.pad_output or any(sides):
            raise Unsupported(
                f"A stack needs a whole slice of {self.N} steps: strict_length=False, pad_output "
                "and span would shorten it.",
                expected=self.N,
                advice="FrameStack(storage, n) also stacks the first rows of a trajectory.",
            )
        slices = arguments.slices(SliceOptions(slice_len=self.N))
        return StackedSlices(self), SlicePerRow(**slices)


class StackedSlices(StepTransform):
    """Reduces each slice of N steps to the step whose stack is the slice; see ``CatFrames``."""

    def __init__(self, frames: CatFrames) -> None:
        self.frames = frames.with_successors()

    def __call__(self, batch: TensorDict) -> TensorDict:
        """Return the steps ``[B]`` of a batch of slices ``[B * N]``, with their stacks."""
        if batch.numel() % self.frames.N:
            raise WrongSize(
                f"Stacks need slices of {self.frames.N} steps; found a batch "
                f"{list(batch.batch_size)}.",
                expected=f"a multiple of {self.frames.N}",
                found=batch.numel(),
                advice="Use the sampler that was returned with this transform.",
            )
        slices = batch.reshape(-1, self.frames.N)
        step = slice(0, 1) if self.frames.future else slice(-1, None)
        stacks = self.frames._stacks(slices, step)
        return slices[:, step].update(stacks).squeeze(1)

    def inv(self, data: TensorDict) -> TensorDict:
        """Return the rows to store, without the stacks, which are computed when rows are read."""
        return data.exclude(*self.frames.out_keys)
