"""Samplers of slices with TorchRL's arguments, which ``slicing_of`` translates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from datasets_cli.replay.arguments import NestedKey
from datasets_cli.replay.samplers.prioritized_slices import PrioritizedSlices
from datasets_cli.replay.samplers.slice_epochs import SliceEpochs
from datasets_cli.replay.samplers.slices import UniformSlices
from datasets_cli.replay.samplers.windows import Span
from datasets_cli.torchrl.slicing_arguments import slicing_from


class SliceSampler(UniformSlices):
    """Draws runs of consecutive rows, each within one trajectory.

        trajectory   0 0 0 0 0 1 1 1 2 2 2 2
        slice of 3     └───┘                    a start is uniform over those that leave room

    A trajectory is drawn uniformly, then a start in it; a slice never crosses a boundary. The batch
    is flat, ``[num_slices * slice_len]``; ``batch.reshape(num_slices, -1)`` gives the slices.

    Trajectories are what the storage knows of them: a dataset its table, other storages the first
    there is of ``("collector", "traj_ids")``, ``"episode"`` and ``("next", "done")``. They are
    worked out once, and again after rows were written.

    Args:
        num_slices: slices in a batch; exclusive with ``slice_len``.
        slice_len: rows in a slice; exclusive with ``num_slices``.
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
        strict_length: leave out trajectories shorter than a slice; otherwise they are drawn whole
            and the batch is shorter than asked for.
        pad_output: repeat the last row of a short slice up to the full length, and mark the rows
            that are real in ``("collector", "mask")``. The last real row ends the slice.
        compile: given for compatibility; nothing is compiled.
        span: how many rows of a slice may be before its trajectory (left) and after it (right),
            and are left out; one value, or one for each side; True for all but one.
        use_gpu: given for compatibility; trajectories are found on the CPU.

    Raises:
        TypeError: more than one way, or none, to say where slices are cut; or ``fragmented`` with
            flags in place of numbers.
        UsageError: a size that is no whole number from 1 on.
    """

    def __init__(
        self,
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
        cache_values: bool = False,
        truncated_key: NestedKey | None = ("next", "truncated"),
        init_key: NestedKey | None = "is_init",
        strict_length: bool = True,
        pad_output: bool = False,
        compile: bool | dict[str, Any] = False,
        span: Span | Sequence[Span] = False,
        use_gpu: torch.device | bool = False,
    ) -> None:
        super().__init__(slicing_from(locals()))


class SliceSamplerWithoutReplacement(SliceEpochs):
    """Draws one random slice of every trajectory, each trajectory once an epoch.

    Args:
        num_slices: see ``SliceSampler``, as for all others but these two.
        drop_last: leave out a last batch that has too few trajectories left.
        shuffle: visit the trajectories in random order.

    Raises:
        TypeError: as ``SliceSampler``.
        UsageError: as ``SliceSampler``.
    """

    def __init__(
        self,
        *,
        num_slices: int | None = None,
        slice_len: int | None = None,
        drop_last: bool = False,
        end_key: NestedKey | None = None,
        end_keys: Sequence[NestedKey] | None = None,
        traj_key: NestedKey | None = None,
        trajectory_key: NestedKey | None = None,
        step_key: NestedKey | None = "step_count",
        fragmented: bool = False,
        ends: torch.Tensor | None = None,
        trajectories: torch.Tensor | None = None,
        cache_values: bool = False,
        truncated_key: NestedKey | None = ("next", "truncated"),
        init_key: NestedKey | None = "is_init",
        strict_length: bool = True,
        pad_output: bool = False,
        shuffle: bool = True,
        compile: bool | dict[str, Any] = False,
        span: Span | Sequence[Span] = False,
        use_gpu: torch.device | bool = False,
    ) -> None:
        super().__init__(slicing_from(locals()), drop_last=drop_last, shuffle=shuffle)


class PrioritizedSliceSampler(PrioritizedSlices):
    """Draws runs of consecutive rows, each within one trajectory, by the priority of its first row.

        trajectory   0 0 0 0 0 1 1 1 2 2
        can begin    x x x     x           a slice of 3

    A row that leaves no room for a slice is never drawn as a first row, however high its priority,
    and the importance weights compare the rows that can be. Every row of a slice gets the
    weight of its first. Whoever updates priorities decides what that of a first row stands for: its
    own error, or the highest of its slice.

    Args:
        max_capacity: most rows that the storage can have.
        alpha: how much priorities matter.
        beta: how much importance weights correct for it.
        eps: added to every priority.
        dtype: of the importance weights.
        reduction: how several numbers a row become one.
        num_slices: see ``SliceSampler``, as for all others; slices can be neither padded nor
            fragmented here.
        strict_length: leave out trajectories shorter than a slice; otherwise they are drawn whole.
        span: only the right side can be given, as ``(False, rows)``: there is no row before a
            trajectory to begin at.
        max_priority_within_buffer: see ``PrioritizedSampler``.
        device: where rows are drawn.

    Raises:
        TypeError: as ``SliceSampler``.
        UsageError: an argument is out of its range, or one of those that do not have a meaning
            here.
    """

    def __init__(
        self,
        max_capacity: int,
        alpha: float,
        beta: float,
        eps: float = 1e-8,
        dtype: torch.dtype = torch.float,
        reduction: str = "max",
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
        cache_values: bool = False,
        truncated_key: NestedKey | None = ("next", "truncated"),
        init_key: NestedKey | None = "is_init",
        strict_length: bool = True,
        pad_output: bool = False,
        compile: bool | dict[str, Any] = False,
        span: Span | Sequence[Span] = False,
        use_gpu: torch.device | bool = False,
        max_priority_within_buffer: bool = False,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(
            slicing_from(locals()),
            max_capacity,
            alpha,
            beta,
            eps,
            dtype,
            reduction,
            max_priority_within_buffer=max_priority_within_buffer,
            device=device,
        )
