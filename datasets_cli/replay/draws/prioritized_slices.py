"""The sampler of slices by priority: runs of rows that begin at rows drawn by priority."""

from __future__ import annotations

import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.draws.priority_sampler import Prioritized
from datasets_cli.replay.draws.protocol import Info
from datasets_cli.replay.draws.slices import Slices
from datasets_cli.replay.draws.slicing import Slicing, trajectories_of
from datasets_cli.replay.draws.windows import overhang, too_short
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.trajectories.boundaries import TrajectoryKeys
from datasets_cli.replay.trajectories.index import TrajectoryIndex


class PrioritizedSlices(Prioritized, Slices):
    """Draws runs of consecutive rows, each within one trajectory, by the priority of its first row.

        trajectory   0 0 0 0 0 1 1 1 2 2
        can begin    x x x     x           a slice of 3

    A row that leaves no room for a slice is never drawn as a first row, however high its priority,
    and the importance weights compare the rows that can be. Every row of a slice gets the
    weight of its first. Whoever updates priorities decides what that of a first row stands for: its
    own error, or the highest of its slice.
    """

    kind = "slices by priority"

    def __init__(
        self,
        slicing: Slicing,
        max_capacity: int,
        alpha: float,
        beta: float,
        eps: float = 1e-8,
        dtype: torch.dtype = torch.float,
        reduction: str = "max",
        *,
        max_priority_within_buffer: bool = False,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(
            max_capacity, alpha, beta, eps, dtype, reduction, max_priority_within_buffer, device
        )
        if slicing.pad_output or _is_fragmented(slicing):
            raise UsageError("Slices that begin by priority are neither padded nor fragmented.")
        if slicing.span[0]:
            raise UsageError(
                "A slice that begins at a row drawn by priority has no row before its trajectory. "
                f"Give span=(False, {slicing.span[1]}), for the right side alone."
            )
        self.slicing = slicing
        self._prepared: tuple[Storage, int, int, int, TrajectoryIndex] | None = None
        self._rows_left = torch.empty(0, dtype=torch.int64)  # of each row's trajectory, with it
        self._all_full = False  # whether no slice is short

    def sample(
        self, storage: Storage, batch_size: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return row numbers int64 ``[B]``, slice after slice, their weights and slice ends.

        Raises:
            UsageError: the batch is not a whole number of slices, no trajectory is long enough, or
                the storage is larger than the capacity.
        """
        num_slices, slice_len = self.slicing.shape(batch_size)
        self._fit(storage)
        trajectories = self._make_room(storage, slice_len)
        first, weights = self.priorities.draw(num_slices, self.beta, generator)
        steps = torch.arange(slice_len, device=first.device)
        index = trajectories.rows(first, steps)
        left = self._rows_left[first].unsqueeze(1)
        # A slice ends with its last step, or before it where its trajectory does.
        last = (steps == slice_len - 1) | (steps == left - 1)
        weights = weights.to(self.dtype).unsqueeze(1).repeat(1, slice_len)
        if self._all_full:
            index, last, weights = (each.reshape(-1) for each in (index, last, weights))
        else:
            inside = steps < left
            index, last, weights = index[inside], last[inside], weights[inside]
        info = self.slicing.sample_info(storage, last.unsqueeze(1))
        return index, {("priority_weight",): weights, **info}

    def _make_room(self, storage: Storage, slice_len: int) -> TrajectoryIndex:
        """Let the rows that leave room for a slice be drawn; return the trajectories."""
        # Nothing is to be done where neither the storage nor the priorities were written since.
        known, asked = self._prepared, (storage, slice_len, storage.revision, self.revision)
        if known is not None and known[:4] == asked:
            return known[4]
        trajectories = trajectories_of(storage, self.slicing.trajectories)
        lengths = trajectories.lengths
        _, right = overhang(self.slicing.span, slice_len)
        # The first steps of a trajectory that can begin a slice; a short one is drawn whole, from
        # its first step on, or not at all.
        room = (lengths - slice_len + 1 + right).clamp(min=1)
        if self.slicing.strict_length:
            room *= lengths >= slice_len
        if not bool(room.any()):
            raise too_short(lengths, slice_len)
        number, step, row = trajectories.every_row()
        # What is known of a step of a trajectory, at its row of the storage.
        begins = torch.zeros(len(storage), dtype=torch.bool)
        begins[row] = step < room[number]
        left = torch.zeros(len(storage), dtype=torch.int64)
        left[row] = lengths[number] - step
        self.priorities.set_mask(begins)
        self._rows_left = left.to(self.device)
        self._all_full = self.slicing.strict_length and not right
        self._prepared = (*asked, trajectories)
        return trajectories


def _is_fragmented(slicing: Slicing) -> bool:
    """Tell whether the rows of a trajectory may be apart."""
    trajectories = slicing.trajectories
    if isinstance(trajectories, TrajectoryKeys):
        return trajectories.step is not None
    return trajectories.order is not None
