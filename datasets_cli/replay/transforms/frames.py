"""Frame stacks of steps in a row: each entry becomes the last N steps of its trajectory, joined.

N = 3, T = 6      a b c|d e f                     a trajectory begins with a and with d
at c              a b c
at d, "same"      d d d       "constant"  . . d   . is the padding value
next, at d        d d e                   . d e   the entry at d comes before its own successor
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Literal, Self

import torch
from tensordict import TensorDict

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import NestedKey, NestedKeys, key_of, optional_key, whole_number
from datasets_cli.replay.trajectories.bounds import first_of, last_of
from datasets_cli.replay.transforms.steps import flags
from datasets_cli.replay.transforms.transform import KeyMap, StepTransform, required_entry
from datasets_cli.schema.columns import Key, show_key

StackPadding = Literal["same", "constant"]


@dataclass(frozen=True)
class _Windows:
    """The steps of each stack."""

    # row: where a row of the batch begins, flattened, int64 `[*B, 1, 1]`.
    # steps: the steps to read, int64 `[*B, t, N]`.
    # edge: the first (or last) of their trajectory, int64 `[*B, t, 1]`.
    # padded: which steps are beyond it, bool `[*B, t, N]`.
    # wanted: what the steps would have been, int64 `[t, N]`.

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
        rows = self.row + self.steps
        stack: torch.Tensor = value.flatten(0, ndim - 1).index_select(0, rows.flatten())
        stack = stack.view(*rows.shape, *value.shape[ndim:])
        padded = self.padded
        if first is not None:
            edge = (self.row + self.edge).expand(padded.shape)[padded]
            stack[padded] = first.flatten(0, ndim - 1)[edge]
            padded = self.wanted < self.edge - 1
        if padding == "same":
            return stack
        return torch.where(padded.view(*padded.shape, *[1] * (value.ndim - ndim)), fill, stack)


def _windows_of(ends: torch.Tensor, size: int, when: slice, *, future: bool) -> _Windows:
    """Return the steps that make the stack of each step."""
    # ends: which steps end their trajectory, bool `[*B, T]`.
    time = ends.shape[-1]
    offsets = torch.arange(size, device=ends.device) - (0 if future else size - 1)
    wanted = torch.arange(time, device=ends.device)[when].unsqueeze(1) + offsets
    edge = (last_of(ends) if future else first_of(ends))[..., when].unsqueeze(-1)
    steps = torch.minimum(wanted, edge) if future else torch.maximum(wanted, edge)
    row = torch.arange(ends[..., 0].numel(), device=ends.device) * time
    return _Windows(row.view(*ends.shape[:-1], 1, 1), steps, edge, wanted != steps, wanted)


class StackedSteps(StepTransform):
    """Joins each entry with those of the N - 1 steps before it in its trajectory, oldest first."""

    # The batch is steps in a row, `[*B, T]`: a trajectory begins with the batch and after each
    # `("next", "done")`. An entry below `"next"` whose own entry is among `in_keys` too is stacked
    # as the step after: the newest steps of that stack, and the successor after them.
    # mask_key: where bool `[*B, T, N]` goes, True for a step of a stack that is padding.

    def __init__(
        self,
        N: int,  # noqa: N803 (as drawn above)
        dim: int,
        in_keys: NestedKeys,
        out_keys: NestedKeys | None = None,
        *,
        padding: StackPadding = "same",
        padding_value: float = 0,
        as_inverse: bool = False,
        done_key: NestedKey = "done",
        future: bool = False,
        mask_key: NestedKey | None = None,
    ) -> None:
        self.N = whole_number("N", N, 1)
        self.dim = whole_number("dim", dim)
        if self.dim >= 0 or padding not in ("same", "constant"):
            raise UsageError(
                f"{self._name} joins steps along a negative dim, padded with 'same' or 'constant'; "
                f"not along {dim}, padded with {padding!r}."
            )
        self.padding = padding
        self.padding_value = padding_value
        self.as_inverse = self.only_writes = as_inverse
        self.future = future
        self.mask_key = optional_key(mask_key)
        self._done = ("next", *key_of(done_key))
        self._keys = KeyMap(self._name, in_keys, out_keys)

    def __call__(self, batch: TensorDict) -> TensorDict:
        """Put the stacks into the batch ``[*B, T]``, and return it."""
        return batch if self.as_inverse else batch.update(self._stacks(batch, slice(None)))

    def inv(self, data: TensorDict) -> TensorDict:
        return data.copy().update(self._stacks(data, slice(None))) if self.as_inverse else data

    def with_successors(self) -> Self:
        """Return this transform, stacking the successor below ``"next"`` of every entry as well."""
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
        """What messages call the transform: its public name."""
        return type(self).__name__

    @property
    def out_keys(self) -> list[Key]:
        """Where the stacks go."""
        return self._keys.out_keys

    def __repr__(self) -> str:
        return f"{self._name}(N={self.N}, dim={self.dim}, in_keys={self._keys.in_keys})"

    def _stacks(self, batch: TensorDict, when: slice) -> TensorDict:
        """Return the stacks ``[*B, t, ...]`` of some of the steps, and their mask."""
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
                raise UsageError(
                    f"{self._name} cannot join {show_key(source)} along dim {self.dim}: its shape "
                    f"{list(value.shape)} has {value.ndim - batch.ndim} dimensions after those of "
                    f"the batch {list(batch.batch_size)}. Unsqueeze it first."
                )
            stack = windows.stacks(value, first, self.padding, self.padding_value)
            stacks[target] = stack.movedim(batch.ndim, place).flatten(place, place + 1)
        if self.mask_key is not None:
            stacks[self.mask_key] = windows.padded
        return stacks


class StackedSlices(StepTransform):
    """Leaves of each slice of N steps the one whose stack is the slice; see ``StackedSteps``."""

    def __init__(self, frames: StackedSteps) -> None:
        self.frames = frames.with_successors()

    def __call__(self, batch: TensorDict) -> TensorDict:
        """Return the steps ``[B]`` of a batch of slices ``[B * N]``, with their stacks."""
        if batch.numel() % self.frames.N:
            raise UsageError(
                f"Stacks are made of slices of {self.frames.N} steps, as the sampler that came "
                f"with this transform draws them; found a batch {list(batch.batch_size)}."
            )
        slices = batch.reshape(-1, self.frames.N)
        step = slice(0, 1) if self.frames.future else slice(-1, None)
        stacks = self.frames._stacks(slices, step)
        return slices[:, step].update(stacks).squeeze(1)

    def inv(self, data: TensorDict) -> TensorDict:
        """Return the rows to be stored, without stacks: those are made when rows are read."""
        return data.exclude(*self.frames.out_keys)
