"""The prioritised sampler: it draws rows in proportion to priorities, which training updates."""

from __future__ import annotations

import math
from collections.abc import Sized
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

import numpy as np
import torch

from datasets_cli.core.options import check_choice
from datasets_cli.errors import WrongRows, WrongState, wrong_value
from datasets_cli.replay.arguments import REDUCTIONS, Numbers, StateDict, whole_number
from datasets_cli.replay.samplers.priorities import Priorities, priorities_on
from datasets_cli.replay.samplers.protocol import Draw, Info, PrioritySampler
from datasets_cli.replay.samplers.rows import SingleRows
from datasets_cli.replay.samplers.slice_windows import SliceBegins, SliceWindows
from datasets_cli.replay.state_file import read_state_file, write_state_file
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.schema.mapping import usable_device
from datasets_cli.schema.shapes import Lengths, RowNumbers

PRIORITIES = "priorities.pt"


def are_priorities(numbers: torch.Tensor, unknown: float = -1) -> bool:
    """Return whether all numbers are finite priorities, or ``unknown`` for rows without one."""
    known = (numbers >= 0) | (numbers == unknown)
    return bool((known & numbers.isfinite()).all())


@dataclass(frozen=True)
class PriorityOptions:
    """How rows are drawn by priority; ``PrioritizedSampler`` documents each field."""

    max_capacity: int
    alpha: float
    beta: float
    eps: float = 1e-8
    dtype: torch.dtype = torch.float
    reduction: str = "max"
    _: KW_ONLY
    max_priority_within_buffer: bool = False
    device: torch.device | str | None = None


class PriorityDraw(Draw):
    """Draws rows, or the first rows of slices, in proportion to a power of their priority.

        trajectory   0 0 0 0 0 1 1 1 2 2
        can begin    x x x     x           a slice of 3

    A row too near its trajectory's end is never the first row of a slice.
    Importance weights are relative to the rows that can be drawn.
    """

    kind = "{} by priority"
    priorities: Priorities[np.ndarray] | Priorities[torch.Tensor]
    _highest: float  # the highest priority ever set; -1 before the first
    _masked_for: SliceWindows | None  # the slices whose first rows can be drawn
    _lengths: Lengths  # rows of the slice that begins at each row

    def __init__(self, options: PriorityOptions) -> None:
        self.max_capacity = whole_number("max_capacity", options.max_capacity, 1)
        if not options.dtype.is_floating_point:
            raise wrong_value("dtype", "a floating dtype, such as torch.float32", options.dtype)
        check_choice("reduction", options.reduction, REDUCTIONS)
        self.dtype = options.dtype
        self.reduction = options.reduction
        self.max_priority_within_buffer = options.max_priority_within_buffer
        self.device = usable_device("cpu" if options.device is None else options.device)
        self.beta = not_negative("beta", options.beta)
        self._reset(not_negative("alpha", options.alpha), not_negative("eps", options.eps))

    @property
    def default_priority(self) -> float:
        highest = self._highest
        if self.max_priority_within_buffer:
            known = self.priorities.known
            highest = float(known.max()) if len(known) else -1.0
        return highest if highest >= 0 else 1.0

    @property
    def max_weight(self) -> float:
        """The divisor of the importance weights; see ``Priorities.max_weight``."""
        return self.priorities.max_weight(self.beta)

    def take(
        self, storage: Storage, items: Sized, count: int, generator: torch.Generator
    ) -> tuple[RowNumbers, Info]:
        """Return ``count`` row numbers, and their ``priority_weight``."""
        self._resize(storage)
        rows, weights = self.priorities.draw(count, self.beta, generator)
        return rows, {("priority_weight",): weights.to(self.dtype)}

    def take_slices(
        self, storage: Storage, windows: SliceWindows, count: int, generator: torch.Generator
    ) -> tuple[SliceBegins, Info]:
        """Return the first rows of slices, drawn among the rows at which a slice can begin."""
        if self._masked_for is not windows:  # a write replaces the windows
            self._resize(storage)
            rows, lengths = windows.all_begins()
            allowed = torch.zeros(len(storage), dtype=torch.bool)
            allowed[rows] = True
            of_rows = torch.zeros(len(storage), dtype=torch.int64)
            of_rows[rows] = lengths
            self._lengths = of_rows.to(self.device)
            self.priorities.set_mask(allowed)
            self._masked_for = windows
        first, info = self.take(storage, storage, count, generator)
        return SliceBegins(first, None if windows.are_full else self._lengths[first]), info

    def set(self, rows: RowNumbers, priority: torch.Tensor) -> None:
        """Set the priorities ``[B]``, or one for all ``[]``, of rows; the row -1 is skipped."""
        self._highest = max(self._highest, self.priorities.set(rows, priority))

    def on_write(self, rows: RowNumbers) -> None:
        rows = rows.reshape(-1)
        self.reserve(int(rows.max()) + 1 if rows.numel() else 0)
        if self.max_priority_within_buffer:
            self.priorities.clear(rows)  # the priorities of overwritten rows no longer count
        self.set(rows, torch.tensor(self.default_priority, dtype=torch.float64))

    def reserve(self, num_rows: int) -> None:
        """Grow the capacity to at least ``num_rows``."""
        if num_rows <= self.max_capacity:
            return
        # At least double it: each time, all priorities are copied.
        self.max_capacity = max(num_rows, 2 * self.max_capacity)
        before = self.priorities
        self._new_priorities(before.alpha, before.eps)
        self.priorities.fill(before.known)

    def restart(self) -> None:
        """Clear all priorities."""
        self._reset(self.priorities.alpha, self.priorities.eps)

    def state_dict(self) -> StateDict:
        """Return the settings, and the priority of each row."""
        return {
            "alpha": self.priorities.alpha,
            "beta": self.beta,
            "eps": self.priorities.eps,
            "max_priority": self._highest,
            "priorities": self.priorities.known.clone(),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restore the settings and priorities of a state."""
        priorities = torch.as_tensor(state["priorities"])
        highest = torch.as_tensor(state["max_priority"], dtype=torch.float64)
        if (
            priorities.ndim != 1
            or highest.ndim
            or not (are_priorities(priorities) and are_priorities(highest))
        ):
            raise WrongState(
                "The priorities of the state are invalid: expected one finite number per row, not "
                "negative, or -1 for a row without a priority.",
                key="priorities",
                advice="Save the state again.",
            )
        names = "alpha", "beta", "eps"
        alpha, beta, eps = (not_negative(name, state[name]) for name in names)
        self.beta = beta
        self._reset(alpha, eps)
        self.reserve(len(priorities))
        self._highest = float(highest)
        try:
            with np.errstate(over="raise"):
                self.priorities.fill(priorities)
        except FloatingPointError as error:
            raise WrongState(
                f"The priorities of the state to the power of alpha={alpha} are beyond float64.",
                key="alpha",
                found=alpha,
                advice="Save the state again.",
            ) from error

    def _resize(self, storage: Storage) -> None:
        """Draw from exactly the rows of the storage."""
        if not self.priorities.has_size(len(storage)):
            self.reserve(len(storage))
            default = self.default_priority
            self.priorities.resize(len(storage), default)
            self._highest = max(self._highest, default)

    def _reset(self, alpha: float, eps: float) -> None:
        self._new_priorities(alpha, eps)
        self._highest = -1.0

    def _new_priorities(self, alpha: float, eps: float) -> None:
        self.priorities = priorities_on(self.device, self.max_capacity, alpha, eps)
        self._masked_for = None

    def __getstate__(self) -> StateDict:
        return {**self.__dict__, "_masked_for": None}  # computed again from the storage


def not_negative(name: str, value: float) -> float:
    """Return an argument as a float, or raise ``UsageError`` if it is negative or not finite."""
    if isinstance(value, str) or not 0 <= value < math.inf:
        raise wrong_value(name, "a finite number, not negative", value)
    return float(value)


class PrioritizedSampler(SingleRows, PrioritySampler):
    """Draws rows in proportion to a power of their priority.

    >>> sampler = PrioritizedSampler(max_capacity=1000, alpha=0.7, beta=0.5)
    >>> sampler.update_priority(torch.arange(3), torch.tensor([0.1, 2.0, -1.0]))

    A batch has the importance weight of each row, ``priority_weight`` ``[B]``.

    Args:
        max_capacity: the initial capacity in rows; it grows with the storage.
        alpha: the exponent of priorities; 0 draws uniformly.
        beta: the exponent of importance weights; 1 corrects fully for the priorities.
        eps: added to every priority, so that every row can be drawn.
        dtype: the dtype of the importance weights; priorities and their sums are float64.
        reduction: how several numbers per row become one priority: ``"max"``, ``"min"``, ``"mean"``
            or ``"median"``.
        max_priority_within_buffer: new rows get the highest priority of the rows in the buffer,
            rather than the highest ever set.
        device: the device on which rows are drawn; the CPU by default.

    Raises:
        UsageError: an argument is out of range.
    """

    draw: PriorityDraw

    def __init__(
        self,
        max_capacity: int,
        alpha: float,
        beta: float,
        eps: float = 1e-8,
        dtype: torch.dtype = torch.float,
        reduction: str = "max",
        max_priority_within_buffer: bool = False,
        device: torch.device | str | None = None,
    ) -> None:
        options = PriorityOptions(
            max_capacity,
            alpha,
            beta,
            eps,
            dtype,
            reduction,
            max_priority_within_buffer=max_priority_within_buffer,
            device=device,
        )
        super().__init__(PriorityDraw(options))

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(alpha={self.alpha}, beta={self.beta}, eps={self.eps}, "
            f"reduction={self.draw.reduction!r})"
        )

    @property
    def max_capacity(self) -> int:
        """The capacity in rows; it grows with the storage."""
        return self.draw.max_capacity

    @property
    def alpha(self) -> float:
        """The exponent of priorities; setting it recomputes the weight of every row."""
        return self.draw.priorities.alpha

    @alpha.setter
    def alpha(self, value: float) -> None:
        self.draw.priorities.alpha = not_negative("alpha", value)

    @property
    def beta(self) -> float:
        """The exponent of importance weights."""
        return self.draw.beta

    @beta.setter
    def beta(self, value: float) -> None:
        self.draw.beta = not_negative("beta", value)

    @property
    def eps(self) -> float:
        """The number that is added to every priority."""
        return self.draw.priorities.eps

    @property
    def default_priority(self) -> float:
        """The priority of a new row: the highest so far, or 1 before the first."""
        return self.draw.default_priority

    def update_priority(self, index: Numbers, priority: Numbers) -> None:
        """Set the priorities of rows.

        Args:
            index: row numbers int64 ``[B]``, or of any shape. -1, which a writer returns for a row
                that it rejected, is skipped. If a row is repeated, its last priority counts.
            priority: one number for all; or one per row, such as ``[B]`` or ``[B, 1]``; or several
                per row, ``[B, T]``, which are reduced. The absolute value counts.

        Raises:
            UsageError: a priority is NaN, infinite or complex.
            WrongRows: the shapes do not fit together, or row numbers are not whole numbers.
            OutOfRange: a row is below -1, or not below the capacity.
        """
        rows = torch.as_tensor(index).reshape(-1)
        if rows.dtype != torch.int64:
            is_whole = not (rows.is_floating_point() or rows.is_complex())
            if rows.numel() and (rows.dtype == torch.bool or not is_whole):
                raise wrong_value("index", torch.int64, rows.dtype, kind=WrongRows)
            rows = rows.long()
        values = torch.as_tensor(priority)
        if values.is_complex():
            raise wrong_value("priority", "real numbers", values.dtype, "Pass their .abs().")
        if values.dtype not in (torch.float32, torch.float64):
            values = values.double()  # the absolute value of a whole number can overflow
        self.draw.set(rows, self._one_a_row(values, len(rows)))

    def on_write(self, rows: RowNumbers) -> None:
        """Give written rows the default priority."""
        self.draw.on_write(rows)

    def dumps(self, path: str | Path) -> None:
        """Write the state into the file ``priorities.pt`` of a folder, which is created."""
        write_state_file(Path(path) / PRIORITIES, self.state_dict())

    def loads(self, path: str | Path) -> None:
        """Load the state that ``dumps`` wrote into a folder."""
        self.load_state_dict(read_state_file(Path(path) / PRIORITIES))

    def _one_a_row(self, priority: torch.Tensor, num_rows: int) -> torch.Tensor:
        """Return priorities ``[num_rows]``, or ``[]`` if one number is for all rows."""
        if priority.numel() == 1:
            return priority.reshape(())
        if priority.numel() == num_rows:
            return priority.reshape(-1)
        if num_rows == 0 or priority.ndim == 0 or len(priority) != num_rows:
            raise wrong_value(
                "priority",
                f"one number, one per row, or several per row: [{num_rows}, ...]",
                list(priority.shape),
                kind=WrongRows,
            )
        return REDUCTIONS[self.draw.reduction](priority.abs().reshape(num_rows, -1))
