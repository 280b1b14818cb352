"""Samplers of slices with TorchRL's arguments, as cuts of the draws that rows have, too."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import torch

from datasets_cli.errors import UsageError
from datasets_cli.options import takes_fields
from datasets_cli.replay.draws.draw import Uniform
from datasets_cli.replay.draws.epochs import Epochs
from datasets_cli.replay.draws.prioritized import PrioritizedSampler
from datasets_cli.replay.draws.priority_draw import PriorityDraw
from datasets_cli.replay.draws.rows import SamplerWithoutReplacement
from datasets_cli.replay.draws.slices import Slices
from datasets_cli.replay.nested_keys import NestedKey
from datasets_cli.replay.trajectories.boundaries import TrajectoryKeys, found_number
from datasets_cli.torchrl.slicing_arguments import SliceArguments, as_named, slices_of


class SliceSampler(Slices):
    """Draws runs of consecutive rows, each within one trajectory.

        trajectory   0 0 0 0 0 1 1 1 2 2 2 2
        slice of 3     └───┘                    a start is uniform over those that leave room

    A trajectory is drawn uniformly, then a start in it; a slice never crosses a boundary. The batch
    is flat, ``[num_slices * slice_len]``; ``batch.reshape(num_slices, -1)`` gives the slices.

    Trajectories are what the storage knows of them: a dataset its table, other storages the first
    there is of ``("collector", "traj_ids")``, ``"episode"`` and ``("next", "done")``. They are
    worked out once, and again after rows were written.

    Raises:
        TypeError: more than one way to say where trajectories are; or ``fragmented`` with flags in
            place of numbers.
        UsageError: a size that is not a whole number from 1 on, or not one size.
    """

    @takes_fields(SliceArguments)
    def __init__(self, arguments: SliceArguments) -> None:
        Slices.__init__(self, Uniform(), **slices_of(arguments))

    @property
    def traj_key(self) -> NestedKey | None:
        """The column of numbers that tells trajectories apart: the one named, else the one found.

        It is found when rows are first drawn; None where flags tell trajectories apart.
        """
        keys = self._keys
        number = keys.number
        if number is None and not keys.ends and self._windows is not None:
            number = found_number(self._windows[0])
        return None if number is None else as_named(number)

    @property
    def end_key(self) -> NestedKey | None:
        """The column of flags that ends trajectories; the done flag where none was named."""
        ends = self._keys.ends or (("next", "done"),)
        return None if len(ends) > 1 else as_named(ends[0])

    @property
    def end_keys(self) -> tuple[NestedKey, ...] | None:
        """The columns of flags that end trajectories, where several were named."""
        ends = self._keys.ends
        return tuple(map(as_named, ends)) if len(ends) > 1 else None

    @property
    def _keys(self) -> TrajectoryKeys:
        given = self.trajectories
        return given if isinstance(given, TrajectoryKeys) else TrajectoryKeys()


@dataclass(frozen=True, kw_only=True)
class SliceEpochArguments(SliceArguments):
    """What the sampler of slices without replacement takes.

    Args:
        drop_last: leave out a last batch that has too few trajectories left.
        shuffle: visit the trajectories in random order.
    """

    drop_last: bool = False
    shuffle: bool = True


class SliceSamplerWithoutReplacement(SliceSampler, SamplerWithoutReplacement):
    """Draws one random slice of every trajectory, each trajectory once an epoch.

    Raises:
        TypeError: as ``SliceSampler``.
        UsageError: as ``SliceSampler``.
    """

    @takes_fields(SliceEpochArguments)
    def __init__(self, arguments: SliceEpochArguments) -> None:
        draw = Epochs(arguments.shuffle, arguments.drop_last)
        Slices.__init__(self, draw, **slices_of(arguments))


@dataclass(frozen=True)
class PrioritizedSliceArguments(SliceArguments):
    """What the sampler of slices by priority takes.

    Args:
        max_capacity: rows that there is room for at first; more take more.
        alpha: how much priorities matter.
        beta: how much importance weights correct for it.
        eps: added to every priority.
        dtype: of the importance weights.
        reduction: how several numbers a row become one.
        pad_output: False.
        span: only the right side can be given, as ``(False, rows)``: there is no row before a
            trajectory to begin at.
        max_priority_within_buffer: see ``PrioritizedSampler``.
        device: where rows are drawn.
    """

    max_capacity: int
    alpha: float
    beta: float
    eps: float = 1e-8
    dtype: torch.dtype = torch.float
    reduction: str = "max"
    _: KW_ONLY
    max_priority_within_buffer: bool = False
    device: torch.device | str | None = None


class PrioritizedSliceSampler(SliceSampler, PrioritizedSampler):
    """Draws runs of consecutive rows, each within one trajectory, by the priority of its first row.

        trajectory   0 0 0 0 0 1 1 1 2 2
        can begin    x x x     x           a slice of 3

    A row that leaves no room for a slice is never drawn as a first row, however high its priority,
    and the importance weights compare the rows that can be. Every row of a slice gets the
    weight of its first. Whoever updates priorities decides what that of a first row stands for: its
    own error, or the highest of its slice. Slices can be neither padded nor fragmented here.

    Raises:
        TypeError: as ``SliceSampler``.
        UsageError: an argument is out of its range, or one of those that do not have a meaning
            here.
    """

    @takes_fields(PrioritizedSliceArguments)
    def __init__(self, arguments: PrioritizedSliceArguments) -> None:
        draw = PriorityDraw(
            arguments.max_capacity,
            arguments.alpha,
            arguments.beta,
            arguments.eps,
            arguments.dtype,
            arguments.reduction,
            arguments.max_priority_within_buffer,
            arguments.device,
        )
        Slices.__init__(self, draw, **slices_of(arguments))
        if arguments.pad_output or arguments.fragmented:
            raise UsageError("Slices that begin by priority are neither padded nor fragmented.")
        if self.span[0]:
            raise UsageError(
                "A slice that begins at a row drawn by priority has no row before its trajectory. "
                f"Give span=(False, {self.span[1]}), for the right side alone."
            )
