"""The prioritised slice sampler: runs of rows that begin at rows drawn by priority."""

from __future__ import annotations

from typing import Any, Unpack

import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.samplers.prioritized import Prioritized
from datasets_cli.replay.samplers.protocol import Info
from datasets_cli.replay.samplers.slice_options import SliceOptions
from datasets_cli.replay.samplers.slices import SliceSampler
from datasets_cli.replay.samplers.windows import overhang, too_short
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.trajectories.index import TrajectoryIndex
from datasets_cli.store.schema.columns import Key


class PrioritizedSliceSampler(Prioritized):
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
        max_priority_within_buffer: see ``Prioritized``.
        device: where rows are drawn.
        slices: the arguments of ``SliceSampler`` but ``pad_output`` and ``fragmented``. With
            ``strict_length=False`` a trajectory that is shorter than a slice is drawn whole. Of
            ``span`` only the right side can be given, as ``(False, rows)``: no row lies before its
            trajectory to begin at.

    Raises:
        UsageError: an argument is out of its range, or one of those that have no meaning here.
    """

    has_slices = True

    def __init__(
        self,
        max_capacity: int,
        alpha: float,
        beta: float,
        eps: float = 1e-8,
        dtype: torch.dtype = torch.float,
        reduction: str = "max",
        *,
        max_priority_within_buffer: bool = False,
        device: torch.device | str | None = None,
        **slices: Unpack[SliceOptions],
    ) -> None:
        super().__init__(
            max_capacity, alpha, beta, eps, dtype, reduction, max_priority_within_buffer, device
        )
        if slices.get("pad_output") or slices.get("fragmented"):
            raise UsageError("Slices that begin by priority are neither padded nor fragmented.")
        self._slices = SliceSampler(**slices)
        if self._slices.span[0]:
            raise UsageError(
                "A slice that begins at a row drawn by priority has no row before its trajectory. "
                f"Give span=(False, {self._slices.span[1]}), for the right side alone."
            )
        self._prepared: tuple[Any, ...] = ()

    def sample(
        self, storage: Storage, batch_size: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return row numbers int64 ``[B]``, slice after slice, their weights and slice ends.

        Raises:
            UsageError: the batch is not a whole number of slices, no trajectory is long enough, or
                the storage is larger than the capacity.
        """
        num_slices, slice_len = self._slices.shape(batch_size)
        self._cover(storage)
        runs = self._make_room(storage, slice_len)
        first, weights = self.priorities.draw(num_slices, self.beta, generator)
        steps = torch.arange(slice_len, device=first.device)
        index = runs.rows(first, steps)
        left = self._left[first].unsqueeze(1)
        last = (steps == slice_len - 1) | (steps == left - 1)
        weights = weights.to(self.dtype).unsqueeze(1).repeat(1, slice_len)
        if self._all_full:
            index, last, weights = (each.reshape(-1) for each in (index, last, weights))
        else:
            inside = steps < left
            index, last, weights = index[inside], last[inside], weights[inside]
        marks = self._slices.marks(storage, last.unsqueeze(1))
        return index, {("priority_weight",): weights, **marks}

    @property
    def truncated_key(self) -> Key | None:  # type: ignore[override]
        """Where slice ends are marked."""
        return self._slices.truncated_key

    @property
    def init_key(self) -> Key | None:  # type: ignore[override]
        """Where slice beginnings are marked."""
        return self._slices.init_key

    def _make_room(self, storage: Storage, slice_len: int) -> TrajectoryIndex:
        """Allow the first rows that leave room for a slice, when they may have changed."""
        asked = (storage, slice_len, storage.revision, self.revision)
        if self._prepared[:4] == asked:
            found = self._prepared[4]
            assert isinstance(found, TrajectoryIndex)
            return found
        runs = self._slices.trajectories(storage)
        lengths = runs.lengths
        _, right = overhang(self._slices.span, slice_len)
        room = (lengths - slice_len + 1 + right).clamp(min=1)
        if self._slices.strict_length:
            room *= lengths >= slice_len
        if not bool(room.any()):
            raise too_short(lengths, slice_len)
        run, step, row = runs.every_row()
        begins = torch.zeros(len(storage), dtype=torch.bool)
        begins[row] = step < room[run]
        left = torch.zeros(len(storage), dtype=torch.int64)
        left[row] = lengths[run] - step
        self.priorities.set_mask(begins)
        self._left = left.to(self.device)
        self._all_full = self._slices.strict_length and not right
        self._prepared = (*asked, runs)
        return runs
