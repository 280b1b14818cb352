"""TorchRL's slice samplers, and slices for frame stacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from datasets_cli.core.options import check_types, part_of, suggests_keywords, takes_fields
from datasets_cli.errors import Unsupported
from datasets_cli.replay.arguments import (
    NestedKey,
    key_of,
    nested_key,
    optional_key,
)
from datasets_cli.replay.samplers.epochs import Epochs
from datasets_cli.replay.samplers.prioritized import (
    PrioritizedSampler,
    PriorityDraw,
    PriorityOptions,
)
from datasets_cli.replay.samplers.protocol import Uniform
from datasets_cli.replay.samplers.rows import SamplerWithoutReplacement
from datasets_cli.replay.samplers.slice_windows import Overhang
from datasets_cli.replay.samplers.slices import SliceOptions, Slices
from datasets_cli.replay.trajectories.bounds import (
    TrajectoryKeys,
    TrajectorySource,
    default_number_key,
    ends_of_numbers,
    index_from_ends,
)


@dataclass(frozen=True, kw_only=True)
class TrajectoryArguments:
    """Where trajectories are, and how slices are cut; ``SliceSampler`` documents each field."""

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
        """Return the arguments of ``Slices`` for slices of a size."""
        return {
            **vars(part_of(size, SliceOptions)),
            "trajectories": self._source(),
            "pad_output": self.pad_output,
            "span": self.span,
            "truncated_key": self.truncated_key,
            "init_key": self.init_key,
        }

    def _source(self) -> TrajectorySource:
        """Return the source of trajectories: numbers, flags, or a fixed index."""
        numbers = _names_set(self, "traj_key", "trajectory_key")
        flags = _names_set(self, "end_key", "end_keys")
        values = _names_set(self, "ends", "trajectories")
        if max(map(len, (numbers, flags, values))) > 1 or (values and (numbers or flags)):
            raise TypeError(
                f"{' and '.join((*numbers, *flags, *values))} exclude one another: pass one of "
                "them. Only traj_key can be combined with an end_key or end_keys, which then also "
                "end trajectories."
            )
        if self.fragmented and (self.step_key is None or flags or values):
            raise TypeError(
                "fragmented=True finds rows by traj_key and step_key: pass both, and none of "
                "end_key, end_keys, ends and trajectories."
            )
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
    """The arguments of every sampler of slices; ``SliceSampler`` documents each field."""


def slices_of(arguments: SliceArguments) -> dict[str, Any]:
    """Return the arguments of ``Slices``."""
    return arguments.slices(arguments)


def _names_set(arguments: TrajectoryArguments, *names: str) -> list[str]:
    """Return the names of the arguments that are not None."""
    return [name for name in names if getattr(arguments, name) is not None]


def _by_step(column: torch.Tensor) -> torch.Tensor:
    """Return a column as ``[T, W]``: T steps of W environments."""
    return column.reshape(len(column), -1)


class SliceSampler(Slices):
    """Draws runs of consecutive rows, each within one trajectory.

        trajectory   0 0 0 0 0 1 1 1 2 2 2 2
        slice of 3     └───┘                    the start is uniform over all that leave room

    A trajectory is drawn uniformly, then a start in it; a slice never crosses a boundary. The batch
    is flat, ``[num_slices * slice_len]``; ``batch.reshape(num_slices, -1)`` gives the slices.

    Without an argument about trajectories, a dataset uses its table. Any other storage uses the
    first of its columns ``("collector", "traj_ids")``, ``"episode"`` and ``("next", "done")``; the
    done flag also ends trajectories that have numbers. The bounds are computed once, and again
    after rows were written.

    Args:
        num_slices: slices in a batch; exclusive with ``slice_len``.
        slice_len: rows in a slice; exclusive with ``num_slices``.
        strict_length: leave out trajectories shorter than a slice; otherwise they are drawn whole,
            and the batch is shorter than ``batch_size``.
        end_key: a column of flags, True at the end of a trajectory.
        end_keys: several such columns; a trajectory ends where one of them is True. Columns that a
            storage does not have are skipped.
        traj_key: a column of numbers that change between trajectories. ``end_key``,
            ``end_keys`` or, by default, the done flag also end trajectories.
        trajectory_key: an alias of ``traj_key``.
        step_key: the column of step numbers within a trajectory; read with ``fragmented``.
        fragmented: the rows of several trajectories can be interleaved, as when environments take
            turns in one flat storage. ``traj_key`` finds the rows of a trajectory, ``step_key``
            orders them. A missing step splits a trajectory in two.
        ends: flags as ``end_key``, bool ``[N]``, for a storage that does not change; with several
            dimensions ``[T, *environments]``, time first.
        trajectories: numbers as ``traj_key``, int, of the same shapes.
        cache_values: ignored; bounds are always cached until rows are written.
        truncated_key: the flag that is set in the last row of each slice, together with the done
            flag next to it, for value estimators that must not look past the slice; None sets no
            flag.
        init_key: the flag that is set in the first row of each slice, for recurrent modules that
            reset there; a storage without this column gets no flag. None sets no flag.
        pad_output: repeat the last row of a short slice up to the full length; the mask of the real
            rows is ``("collector", "mask")``. The last real row ends the slice.
        compile: ignored; nothing is compiled.
        span: rows of a slice that may lie before its trajectory (left) and after it (right); they
            are left out. One number, or one for each side; True for all rows but one.
        use_gpu: ignored; trajectories are found on the CPU.

    Raises:
        TypeError: more than one argument defines the trajectories, or ``fragmented`` is used with
            flags instead of numbers.
        UsageError: both or neither of ``num_slices`` and ``slice_len``, or one that is not a
            positive whole number.
    """

    @suggests_keywords
    def __init__(
        self,
        *,
        num_slices: int | None = None,
        slice_len: int | None = None,
        strict_length: bool = True,
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
        pad_output: bool = False,
        compile: bool | dict[str, Any] = False,
        span: Overhang | Sequence[Overhang] = False,
        use_gpu: torch.device | bool = False,
    ) -> None:
        arguments = SliceArguments(
            num_slices=num_slices,
            slice_len=slice_len,
            strict_length=strict_length,
            end_key=end_key,
            end_keys=end_keys,
            traj_key=traj_key,
            trajectory_key=trajectory_key,
            step_key=step_key,
            fragmented=fragmented,
            ends=ends,
            trajectories=trajectories,
            truncated_key=truncated_key,
            init_key=init_key,
            pad_output=pad_output,
            span=span,
        )
        check_types(arguments)
        Slices.__init__(self, Uniform(), **slices_of(arguments))

    @property
    def traj_key(self) -> NestedKey | None:
        """The column of trajectory numbers: the argument, or the column that was found.

        It is found by the first draw; None if flags separate trajectories.
        """
        keys = self._keys
        number = keys.number
        if number is None and not keys.ends and self._windows is not None:
            number = default_number_key(self._windows[0])
        return None if number is None else nested_key(number)

    @property
    def end_key(self) -> NestedKey | None:
        """The flag that ends trajectories; ``("next", "done")`` by default."""
        ends = self._keys.ends or (("next", "done"),)
        return None if len(ends) > 1 else nested_key(ends[0])

    @property
    def end_keys(self) -> tuple[NestedKey, ...] | None:
        """The flags that end trajectories, if there are several; otherwise None."""
        ends = self._keys.ends
        return tuple(map(nested_key, ends)) if len(ends) > 1 else None

    @property
    def _keys(self) -> TrajectoryKeys:
        source = self.trajectories
        return source if isinstance(source, TrajectoryKeys) else TrajectoryKeys()


@dataclass(frozen=True, kw_only=True)
class SliceEpochArguments(SliceArguments):
    """The arguments of ``SliceSamplerWithoutReplacement``.

    Args:
        drop_last: leave out a last batch with too few trajectories.
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
class PrioritizedSliceArguments(PriorityOptions, SliceArguments):
    """The arguments of ``PrioritizedSliceSampler``.

    Args:
        pad_output: False.
        span: ``(False, rows)``: only the right side, since a slice begins at a drawn row.
    """


class PrioritizedSliceSampler(SliceSampler, PrioritizedSampler):
    """Draws runs of consecutive rows, each within one trajectory, by the priority of its first row.

        trajectory   0 0 0 0 0 1 1 1 2 2
        can begin    x x x     x           a slice of 3

    A row too near its trajectory's end is never a first row, even if its priority is high.
    Importance weights are relative to the rows that can be first. Every row of a slice gets the
    weight of its first row. The caller chooses the priority of a first row: its own error, or the
    highest of its slice. Slices can be neither padded nor fragmented.

    Raises:
        TypeError: as ``SliceSampler``.
        UsageError: an argument is out of range, or is not supported with priorities.
    """

    @takes_fields(PrioritizedSliceArguments)
    def __init__(self, arguments: PrioritizedSliceArguments) -> None:
        draw = PriorityDraw(part_of(arguments, PriorityOptions))
        Slices.__init__(self, draw, **slices_of(arguments))
        if arguments.pad_output or arguments.fragmented:
            name = "pad_output" if arguments.pad_output else "fragmented"
            raise Unsupported(
                f"PrioritizedSliceSampler does not support {name}=True.",
                argument=name,
                found=True,
                advice="Use a SliceSampler.",
            )
        if self.span[0]:
            raise Unsupported(
                "PrioritizedSliceSampler draws the first row of each slice: no row can lie before "
                "the trajectory.",
                argument="span",
                found=arguments.span,
                advice=f"Pass span=(False, {self.span[1]}), for the right side only.",
            )


class SlicePerRow(Slices):
    """Draws a slice for each row of a batch."""

    def __init__(self, **slices: Any) -> None:
        super().__init__(Uniform(), **slices)
        self.supports_lookahead = False  # a batch has more rows than its batch size

    @property
    def kind(self) -> str:
        """The way of drawing."""
        return "a uniform slice for each row"

    def shape(self, batch_size: int) -> tuple[int, int]:
        """Return the number of slices in a batch, and their length."""
        assert self.slice_len is not None
        return batch_size, self.slice_len
