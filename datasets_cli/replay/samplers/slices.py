"""The slice sampler: it draws runs of consecutive rows, each within one trajectory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import NestedKey, key_of, whole_number
from datasets_cli.replay.samplers.protocol import Info, Sampler
from datasets_cli.replay.samplers.windows import SliceWindows, Span, beginnings
from datasets_cli.replay.storages.protocol import NO_ROWS, Storage
from datasets_cli.replay.trajectories.boundaries import TrajectoryKeys
from datasets_cli.replay.trajectories.bounds import ends_of_numbers
from datasets_cli.replay.trajectories.index import TrajectoryIndex, index_from_ends
from datasets_cli.store.schema.columns import Key


class SliceSampler(Sampler):
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
            a storage lacks are passed over.
        traj_key: column of numbers that change between trajectories; ``trajectory_key`` is another
            name for it.
        step_key: column of the numbers of steps in their trajectory; read with ``fragmented``.
        fragmented: the rows of a trajectory may lie apart, as those of environments that take turns
            in one flat storage do: find them by ``traj_key``, and their order by ``step_key``. A
            missing step parts a trajectory in two.
        ends: those flags, bool ``[N]``, for a storage that will not change; of several dimensions
            ``[T, *environments]``, time first.
        trajectories: those numbers, int, of the same shapes.
        cache_values: given for compatibility; trajectories are always kept until rows are written.
        compile: given for compatibility; nothing is compiled.
        use_gpu: given for compatibility; trajectories are found on the CPU.
        truncated_key: where the last row of each slice is marked, for value estimators that must
            not look past it; the done flag beside it is set too. None marks nothing.
        init_key: where the first row of each slice is marked, for recurrent modules that begin anew
            there, beside the marks that are stored. Only rows that have this flag are marked, and
            none with None, for modules that would forget their state.
        strict_length: leave out trajectories shorter than a slice; otherwise they are drawn whole
            and the batch is shorter than asked for.
        pad_output: repeat the last row of a short slice up to the full length, and mark the rows
            that are real in ``("collector", "mask")``. The last real row ends the slice.
        span: how many rows of a slice may lie before its trajectory (left) and behind it (right),
            and are left out; one value, or one for each side; True for all but one.

    Raises:
        TypeError: more than one way, or none, to say where slices are cut; or ``fragmented`` with
            flags in place of numbers.
        UsageError: a size that is no whole number from 1 on.
    """

    has_slices = True

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
        span: Span | tuple[Span, Span] = False,
        use_gpu: torch.device | bool = False,
    ) -> None:
        if (num_slices is None) == (slice_len is None):
            raise TypeError("Give either num_slices or slice_len.")
        numbers, flags = (traj_key, trajectory_key), (end_key, end_keys, ends, trajectories)
        if sum(given is not None for given in (*numbers, *flags)) > 1:
            raise TypeError("Give one of end_key, end_keys, traj_key, ends and trajectories.")
        if fragmented and (step_key is None or any(given is not None for given in flags)):
            raise TypeError("fragmented=True needs a traj_key and a step_key, and no other way.")
        self.num_slices = None if num_slices is None else whole_number("num_slices", num_slices, 1)
        self.slice_len = None if slice_len is None else whole_number("slice_len", slice_len, 1)
        self.strict_length = strict_length
        self.truncated_key = _key(truncated_key)
        self.init_key = _key(init_key)
        self.span = span if isinstance(span, tuple) else (span, span)
        if len(self.span) != 2 or not all(isinstance(side, int) for side in self.span):
            raise UsageError(f"A span is a number, or one for each side, not {span!r}.")
        self._pad_output = pad_output
        self._keys = TrajectoryKeys(
            number=_key(trajectory_key if traj_key is None else traj_key),
            ends=tuple(map(key_of, end_keys or ([] if end_key is None else [end_key]))),
            step=_key(step_key) if fragmented else None,
        )
        self._trajectories: TrajectoryIndex | None = None
        if ends is not None:
            self._trajectories = index_from_ends(_by_step(ends).bool(), 0)
        elif trajectories is not None:
            self._trajectories = index_from_ends(ends_of_numbers(_by_step(trajectories), time=0), 0)
        self._prepared: tuple[Any, ...] = ()

    def sample(
        self, storage: Storage, batch_size: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return row numbers int64 ``[B]``, slice after slice, and the marks of slice ends.

        Raises:
            UsageError: the batch is not a whole number of slices, or no trajectory is long enough.
        """
        num_slices, slice_len = self.shape(batch_size)
        cuts = self.prepare(storage, slice_len)
        drawn = torch.randint(len(cuts), (num_slices,), generator=generator)
        return self.draw(storage, cuts, drawn, generator)

    def shape(self, batch_size: int) -> tuple[int, int]:
        """Return how many slices of how many rows a batch is made of."""
        divisor = self.num_slices or self.slice_len
        assert divisor is not None
        if batch_size % divisor or batch_size < divisor:
            wish = "num_slices" if self.num_slices else "slice_len"
            raise UsageError(
                f"A batch of {batch_size} cannot be cut by {wish}={divisor}: the batch size must "
                f"be a multiple of it, such as {max(1, batch_size // divisor) * divisor}."
            )
        if self.num_slices:
            return self.num_slices, batch_size // self.num_slices
        return batch_size // divisor, divisor

    def trajectories(self, storage: Storage) -> TrajectoryIndex:
        """Return the trajectories of a storage.

        Raises:
            UsageError: it has no rows, or others than ``ends`` or ``trajectories`` are of.
        """
        if not len(storage):
            raise UsageError(NO_ROWS)
        if self._trajectories is None:
            return storage.trajectories(self._keys)
        given = self._trajectories.capacity, self._trajectories.stride
        found = len(storage), getattr(storage, "width", 1)
        if given != found:
            raise UsageError(
                f"The trajectories given are those of {given[0]} rows, {given[1]} a step; the "
                f"storage has {found[0]} rows, {found[1]} a step."
            )
        return self._trajectories

    def prepare(self, storage: Storage, slice_len: int) -> SliceWindows:
        """Return the slices that can be drawn from a storage; worked out once after each write."""
        asked = (storage, storage.revision, slice_len)
        if self._prepared[:3] != asked:
            cuts = SliceWindows(
                self.trajectories(storage), slice_len, self.strict_length, self.span
            )
            self._prepared = (*asked, cuts)
        found = self._prepared[3]
        assert isinstance(found, SliceWindows)
        return found

    def draw(
        self, storage: Storage, cuts: SliceWindows, drawn: torch.Tensor, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return a random slice of each trajectory ``drawn`` int64 ``[S]``, with its marks."""
        index, last, real = cuts.draw(drawn, generator, pad=self._pad_output)
        return index, self.marks(storage, last, real)

    def marks(self, storage: Storage, last: torch.Tensor, real: torch.Tensor | None = None) -> Info:
        """Return the marks of slices, of what ``SliceWindows.draw`` says of their rows."""
        info: Info = {}
        if self.truncated_key is not None:
            info[self.truncated_key] = last
        if self.init_key is not None and storage.has(self.init_key):
            info[self.init_key] = beginnings(last, real)
        if real is not None:
            info["collector", "mask"] = real
        return info

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_prepared": ()}  # worked out again from the storage

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: each draw depends on the generator alone."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take nothing."""


def _by_step(column: torch.Tensor) -> torch.Tensor:
    """Return a column as ``[T, W]``: T steps of W environments."""
    return column.reshape(len(column), -1)


def _key(name: NestedKey | None) -> Key | None:
    return None if name is None else key_of(name)
