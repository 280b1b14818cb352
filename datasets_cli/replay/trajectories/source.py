"""Where trajectories are, told in one of three ways: by flags, by numbers, or given as they are."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from datasets_cli.replay.arguments import NestedKey, key_of, optional_key
from datasets_cli.replay.trajectories.boundaries import TrajectoryKeys
from datasets_cli.replay.trajectories.bounds import ends_of_numbers
from datasets_cli.replay.trajectories.index import TrajectoryIndex, index_from_ends

TrajectorySource = TrajectoryKeys | TrajectoryIndex
"""The columns of a storage that tell, or trajectories that are known already."""

FROM_STORAGE = TrajectoryKeys()
"""What the storage knows of them."""


def trajectory_source(
    *,
    end_key: NestedKey | None = None,
    end_keys: Sequence[NestedKey] | None = None,
    traj_key: NestedKey | None = None,
    trajectory_key: NestedKey | None = None,
    step_key: NestedKey | None = None,
    fragmented: bool = False,
    ends: torch.Tensor | None = None,
    trajectories: torch.Tensor | None = None,
) -> TrajectorySource:
    """Return where trajectories are, from the arguments that slice samplers take.

    Args:
        end_key: column of flags at the ends of trajectories.
        end_keys: several such columns.
        traj_key: column of numbers that change between trajectories.
        trajectory_key: another name of ``traj_key``.
        step_key: column of the numbers of steps in their trajectory; read with ``fragmented``.
        fragmented: the rows of a trajectory may be apart.
        ends: those flags, bool ``[N]`` or ``[T, *environments]``, time first.
        trajectories: those numbers, int, of the same shapes.

    Raises:
        TypeError: more than one way is given; or ``fragmented`` with flags in place of numbers.
    """
    numbers, flags = (traj_key, trajectory_key), (end_key, end_keys, ends, trajectories)
    if sum(given is not None for given in (*numbers, *flags)) > 1:
        raise TypeError("Give one of end_key, end_keys, traj_key, ends and trajectories.")
    if fragmented and (step_key is None or any(given is not None for given in flags)):
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
