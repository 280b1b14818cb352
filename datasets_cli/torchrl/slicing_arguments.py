"""TorchRL's arguments of slices, translated: where trajectories are becomes one thing.

end_key, end_keys          flags              TrajectoryKeys(ends=...)
traj_key, trajectory_key   numbers            TrajectoryKeys(number=...), and step= if fragmented
both                       flags where a storage has no such numbers
ends, trajectories         given as tensors   TrajectoryIndex
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from datasets_cli.options import part_of
from datasets_cli.replay.draws.slices import SliceOptions
from datasets_cli.replay.draws.windows import Overhang
from datasets_cli.replay.nested_keys import NestedKey, key_of, optional_key
from datasets_cli.replay.trajectories.boundaries import TrajectoryKeys, TrajectorySource
from datasets_cli.replay.trajectories.bounds import ends_of_numbers
from datasets_cli.replay.trajectories.index import index_from_ends
from datasets_cli.schema.columns import Key


@dataclass(frozen=True, kw_only=True)
class TrajectoryArguments:
    """Where trajectories are, and how slices of them are cut and marked.

    Args:
        end_key: column of flags at the ends of trajectories.
        end_keys: several such columns; a trajectory ends where any of them says so, and those that
            a storage does not have are passed over.
        traj_key: column of numbers that change between trajectories; with an ``end_key`` or
            ``end_keys`` beside it, these count where a storage does not have it.
        trajectory_key: another name of ``traj_key``.
        step_key: column of the numbers of steps in their trajectory; read with ``fragmented``.
        fragmented: the rows of a trajectory may be apart, as those of environments that take turns
            in one flat storage are: find them by ``traj_key``, and their order by ``step_key``. A
            missing step parts a trajectory in two.
        ends: those flags, bool ``[N]``, for a storage that will not change; of several dimensions
            ``[T, *environments]``, time first.
        trajectories: those numbers, int, of the same shapes.
        cache_values: given for compatibility; trajectories are always kept until rows are written.
        truncated_key: where the last row of each slice is marked, for value estimators that must
            not look past it; the done flag beside it is set too. None marks nothing.
        init_key: where the first row of each slice is marked, for recurrent modules that begin
            again there, beside the marks that are stored. Only rows that have this flag are marked,
            and none with None, for modules that would forget their state.
        pad_output: repeat the last row of a short slice up to the full length, and mark the rows
            that are real in ``("collector", "mask")``. The last real row ends the slice.
        compile: given for compatibility; nothing is compiled.
        span: how many rows of a slice may be before its trajectory (left) and after it (right),
            and are left out; one value, or one for each side; True for all but one.
        use_gpu: given for compatibility; trajectories are found on the CPU.
    """

    end_key: NestedKey | None = None
    end_keys: Sequence[NestedKey] | None = None
    traj_key: NestedKey | None = None
    trajectory_key: NestedKey | None = None
    step_key: NestedKey | None = "step_count"
    fragmented: bool = False
    ends: torch.Tensor | None = None
    trajectories: torch.Tensor | None = None
    cache_values: bool = False
    truncated_key: NestedKey | None = ("next", "truncated")
    init_key: NestedKey | None = "is_init"
    pad_output: bool = False
    compile: bool | dict[str, Any] = False
    span: Overhang | Sequence[Overhang] = False
    use_gpu: torch.device | bool = False

    def slices(self, size: SliceOptions) -> dict[str, Any]:
        """Return what ``Slices`` takes, for slices of a size."""
        return {
            **vars(part_of(size, SliceOptions)),
            "trajectories": self._source(),
            "pad_output": self.pad_output,
            "span": self.span,
            "truncated_key": self.truncated_key,
            "init_key": self.init_key,
        }

    def _source(self) -> TrajectorySource:
        """Return where trajectories are: by number, by flags, or given."""
        numbers = self.traj_key, self.trajectory_key
        flags = self.end_key, self.end_keys
        given = self.ends, self.trajectories
        counts = [sum(one is not None for one in ways) for ways in (numbers, flags, given)]
        if max(counts) > 1 or (counts[2] and any(counts[:2])):
            raise TypeError(
                "Give one of end_key, end_keys, traj_key, ends and trajectories; only a traj_key "
                "may have an end_key or end_keys beside it, for rows that have no such numbers."
            )
        if self.fragmented and (self.step_key is None or any(counts[1:])):
            raise TypeError("fragmented=True needs a traj_key and a step_key, and no other way.")
        if self.ends is not None:
            return index_from_ends(_by_step(self.ends).bool(), 0)
        if self.trajectories is not None:
            return index_from_ends(ends_of_numbers(_by_step(self.trajectories), time=0), 0)
        ends = self.end_keys or ([] if self.end_key is None else [self.end_key])
        return TrajectoryKeys(
            number=optional_key(self.trajectory_key if self.traj_key is None else self.traj_key),
            ends=tuple(map(key_of, ends)),
            step=optional_key(self.step_key) if self.fragmented else None,
        )


@dataclass(frozen=True, kw_only=True)
class SliceArguments(SliceOptions, TrajectoryArguments):
    """What every sampler of slices takes."""


def slices_of(arguments: SliceArguments) -> dict[str, Any]:
    """Return what ``Slices`` takes."""
    return arguments.slices(arguments)


def as_named(key: Key) -> NestedKey:
    """Return a key as users write it: a name that is not nested without a tuple."""
    return key[0] if len(key) == 1 else key


def _by_step(column: torch.Tensor) -> torch.Tensor:
    """Return a column as ``[T, W]``: T steps of W environments."""
    return column.reshape(len(column), -1)
