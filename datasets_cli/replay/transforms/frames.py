"""Frame stacks of steps in a row: each entry becomes the last N steps of its trajectory, joined.

N = 3, T = 6      a b c|d e f                     a trajectory begins with a and with d
at c              a b c
at d, "same"      d d d       "constant"  . . d   . is the padding value
next, at d        d d e                   . d e   the entry at d comes before its own successor
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import TensorDict

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import NestedKey, NestedKeys, key_of, whole_number
from datasets_cli.replay.samplers.slices import SlicePerRow
from datasets_cli.replay.samplers.slicing import Slicing
from datasets_cli.replay.samplers.windows import Span
from datasets_cli.replay.trajectories.source import trajectory_source
from datasets_cli.replay.transforms.key_map import KeyMap, required_entry
from datasets_cli.replay.transforms.steps import flags
from datasets_cli.replay.transforms.transform import Transform
from datasets_cli.replay.transforms.windows import Padding, windows_of
from datasets_cli.store.schema.columns import Key, show_key


class CatFrames(Transform):
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
        padding: Padding = "same",
        padding_value: float = 0,
        as_inverse: bool = False,
        reset_key: NestedKey | None = None,
        done_key: NestedKey | None = None,
        future: bool = False,
        mask_key: NestedKey | None = None,
    ) -> None:
        self.N = whole_number("N", N, 1)
        self.dim = whole_number("dim", dim)
        if self.dim >= 0 or padding not in ("same", "constant"):
            raise UsageError(
                "CatFrames joins steps along a negative dim, padded with 'same' or 'constant'; not "
                f"along {dim}, padded with {padding!r}."
            )
        self.padding = padding
        self.padding_value = padding_value
        self.as_inverse = as_inverse
        self.future = future
        self.mask_key = None if mask_key is None else key_of(mask_key)
        self._done = ("next", *key_of("done" if done_key is None else done_key))
        self._keys = KeyMap("CatFrames", ["pixels"] if in_keys is None else in_keys, out_keys)

    def __call__(self, batch: TensorDict) -> TensorDict:
        """Put the stacks into the batch ``[*B, T]``, and return it.

        Raises:
            UsageError: an entry or the done flag is missing, an entry has no dimension ``dim``
                after those of the batch, or the batch is not of steps in a row.
        """
        return batch if self.as_inverse else batch.update(self._stacks(batch, slice(None)))

    def inv(self, data: TensorDict) -> TensorDict:
        """Return the rows to be stored."""
        return data.copy().update(self._stacks(data, slice(None))) if self.as_inverse else data

    def make_rb_transform_and_sampler(
        self,
        batch_size: int,
        *,
        end_key: NestedKey | None = None,
        end_keys: Sequence[NestedKey] | None = None,
        traj_key: NestedKey | None = None,
        trajectory_key: NestedKey | None = None,
        step_key: NestedKey | None = "step_count",
        fragmented: bool = False,
        ends: torch.Tensor | None = None,
        trajectories: torch.Tensor | None = None,
        cache_values: bool = False,
        truncated_key: NestedKey | None = None,
        init_key: NestedKey | None = None,
        strict_length: bool = True,
        pad_output: bool = False,
        compile: bool | dict[str, Any] = False,
        span: Span | tuple[Span, Span] = False,
        use_gpu: torch.device | bool = False,
    ) -> tuple[StackedSlices, SlicePerRow]:
        """Return a transform and a sampler that stack steps of a buffer which stores single ones.

        The sampler draws a slice of N steps for each row of a batch, and the transform leaves its
        last step, with stacks at ``out_keys`` and below ``"next"``. So a row has N - 1 steps of its
        trajectory before it. When rows are written, the transform drops ``out_keys``.

        >>> transform, sampler = CatFrames(
        ...     N=4, dim=-1, in_keys=["observation"], out_keys=["stack"]
        ... ).make_rb_transform_and_sampler(batch_size=32)

        Args:
            batch_size: rows in a batch, as the buffer is told, too; that counts.
            end_key: see ``SliceSampler``, as for all others.
            end_keys: several columns of flags.
            traj_key: column of the numbers of trajectories.
            trajectory_key: another name of ``traj_key``.
            step_key: column of the numbers of steps.
            fragmented: the rows of a trajectory may be apart.
            ends: flags.
            trajectories: numbers.
            cache_values: given for compatibility.
            truncated_key: where the last step of each slice is marked. Nothing is by default: a
                step ends no trajectory because its stack ends with it.
            init_key: where the first step of each slice is marked; nothing is by default.
            strict_length: True; a stack is made of a whole slice.
            pad_output: False.
            compile: given for compatibility.
            span: False.
            use_gpu: given for compatibility.

        Raises:
            TypeError: more than one way to say where trajectories are.
            UsageError: an argument would make slices of another length than N.
        """
        sides = span if isinstance(span, tuple) else (span, span)
        if not strict_length or pad_output or any(sides):
            raise UsageError(
                f"A stack is made of a whole slice of {self.N} steps; strict_length=False, "
                "pad_output and span would cut it. FrameStack(storage, n) also gives the first "
                "rows of a trajectory."
            )
        slicing = Slicing(
            slice_len=self.N,
            trajectories=trajectory_source(
                end_key=end_key,
                end_keys=end_keys,
                traj_key=traj_key,
                trajectory_key=trajectory_key,
                step_key=step_key,
                fragmented=fragmented,
                ends=ends,
                trajectories=trajectories,
            ),
            truncated_key=truncated_key,
            init_key=init_key,
        )
        return StackedSlices(self), SlicePerRow(slicing)

    def with_successors(self) -> CatFrames:
        """Return this transform, stacking the successor below ``"next"`` of every entry as well."""
        pairs = self._keys.pairs
        pairs += [
            (("next", *source), ("next", *target))
            for source, target in pairs
            if source[0] != "next" and ("next", *source) not in self._keys.in_keys
        ]
        return CatFrames(
            self.N,
            self.dim,
            [source for source, _ in pairs],
            [target for _, target in pairs],
            padding=self.padding,
            padding_value=self.padding_value,
            done_key=self._done[1:],
            future=self.future,
            mask_key=self.mask_key,
        )

    @property
    def out_keys(self) -> list[Key]:
        """Where the stacks go."""
        return self._keys.out_keys

    def __repr__(self) -> str:
        return f"CatFrames(N={self.N}, dim={self.dim}, in_keys={self._keys.in_keys})"

    def _stacks(self, batch: TensorDict, when: slice) -> TensorDict:
        """Return the stacks ``[*B, t, ...]`` of some of the steps, and their mask."""
        ends = flags(batch, self._done, "CatFrames")
        windows = windows_of(ends, self.N, when, future=self.future)
        stacks = TensorDict({}, windows.padded.shape[:-1])
        for source, target in self._keys.pairs:
            owner = source[1:] if source[0] == "next" and not self.future else ()
            first = (
                required_entry(batch, owner, "CatFrames") if owner in self._keys.in_keys else None
            )
            value = required_entry(batch, source, "CatFrames")
            place = value.ndim + self.dim
            if place < batch.ndim:
                raise UsageError(
                    f"CatFrames cannot join {show_key(source)} along dim {self.dim}: its shape "
                    f"{list(value.shape)} has {value.ndim - batch.ndim} dimensions after those of "
                    f"the batch {list(batch.batch_size)}. Unsqueeze it first."
                )
            stack = windows.stacks(value, first, self.padding, self.padding_value)
            stacks[target] = stack.movedim(batch.ndim, place).flatten(place, place + 1)
        if self.mask_key is not None:
            stacks[self.mask_key] = windows.padded
        return stacks


class StackedSlices(Transform):
    """Leaves of each slice of N steps the one whose stack is the slice; see ``CatFrames``.

    Args:
        frames: makes the stacks.
    """

    def __init__(self, frames: CatFrames) -> None:
        self.frames = frames.with_successors()

    def __call__(self, batch: TensorDict) -> TensorDict:
        """Return the steps ``[B]`` of a batch of slices ``[B * N]``, with their stacks.

        Raises:
            UsageError: the batch is not a whole number of slices, such as ``buffer[:]``.
        """
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
