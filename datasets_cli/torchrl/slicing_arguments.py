"""TorchRL's arguments of slices, translated: where trajectories are becomes one thing.

end_key, end_keys          flags              TrajectoryKeys(ends=...)
traj_key, trajectory_key   numbers            TrajectoryKeys(number=...), and step= if fragmented
both                       flags where a storage has no such numbers
ends, trajectories         given as tensors   TrajectoryIndex
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from datasets_cli.replay.arguments import NestedKey, key_of, optional_key
from datasets_cli.replay.samplers.slicing import Slicing
from datasets_cli.replay.samplers.windows import Span
from datasets_cli.replay.trajectories.boundaries import TrajectoryKeys, TrajectorySource
from datasets_cli.replay.trajectories.bounds import ends_of_numbers
from datasets_cli.replay.trajectories.index import index_from_ends


def slicing_of(
    *,
    num_slices: int | None = None,
    slice_len: int | None = None,
    end_key: NestedKey | None = None,
    end_keys: Sequence[NestedKey] | None = None,
    traj_key: NestedKey | None = None,
    trajectory_key: NestedKey | None = None,
    step_key: NestedKey | None = "step_count",
    fragmented: bool = False,
    ends: torch.Tensor | None = None,
    trajectories: torch.Tensor | None = None,
    strict_length: bool = True,
    pad_output: bool = False,
    span: Span | Sequence[Span] = False,
    truncated_key: NestedKey | None = ("next", "truncated"),
    init_key: NestedKey | None = "is_init",
) -> Slicing:
    """Return how slices are cut, from the arguments that TorchRL's slice samplers take."""
    # ends: those flags, bool `[N]` or `[T, *environments]`, time first.
    return Slicing(
        num_slices=num_slices,
        slice_len=slice_len,
        trajectories=_trajectory_source(
            end_key=end_key,
            end_keys=end_keys,
            traj_key=traj_key,
            trajectory_key=trajectory_key,
            step_key=step_key,
            fragmented=fragmented,
            ends=ends,
            trajectories=trajectories,
        ),
        strict_length=strict_length,
        pad_output=pad_output,
        span=span,
        truncated_key=truncated_key,
        init_key=init_key,
    )


def slicing_from(arguments: Mapping[str, Any], **own: Any) -> Slicing:
    """Return how slices are cut, from what ``locals()`` has in a function of these arguments."""
    names = inspect.signature(slicing_of).parameters.keys() & arguments.keys()
    return slicing_of(**{name: arguments[name] for name in names}, **own)


def _trajectory_source(
    *,
    end_key: NestedKey | None,
    end_keys: Sequence[NestedKey] | None,
    traj_key: NestedKey | None,
    trajectory_key: NestedKey | None,
    step_key: NestedKey | None,
    fragmented: bool,
    ends: torch.Tensor | None,
    trajectories: torch.Tensor | None,
) -> TrajectorySource:
    """Return where trajectories are: by number, by flags, or given; see ``slicing_of``."""
    numbers, flags, given = (traj_key, trajectory_key), (end_key, end_keys), (ends, trajectories)
    counts = [sum(one is not None for one in ways) for ways in (numbers, flags, given)]
    if max(counts) > 1 or (counts[2] and any(counts[:2])):
        raise TypeError(
            "Give one of end_key, end_keys, traj_key, ends and trajectories; only a traj_key may "
            "have an end_key or end_keys beside it, for rows that have no such numbers."
        )
    if fragmented and (step_key is None or any(counts[1:])):
        raise TypeError("fragmented=True needs a traj_key and a step_key, and no other way.")
    if ends is not None:
        return index_from_ends(_by_step(ends).bool(), 0)
    if trajectories is not None:
        return index_from_ends(ends_of_numbers(_by_step(trajectories), time=0), 0)
    return TrajectoryKeys(
        number=optional_key(trajectory_key if traj_key is None else traj_key),
        ends=tuple(map(key_of, end_keys or ([] if end_key is None else [end_key]))),
        step=optional_key(step_key) if fragmented else None,
    )


def _by_step(column: torch.Tensor) -> torch.Tensor:
    """Return a column as ``[T, W]``: T steps of W environments."""
    return column.reshape(len(column), -1)
