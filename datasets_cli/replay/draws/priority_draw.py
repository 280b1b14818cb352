"""The draw by priority: how priorities begin, and follow what is written."""

from __future__ import annotations

import math
from collections.abc import Sized

import numpy as np
import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import REDUCTIONS, StateDict, whole_number
from datasets_cli.replay.draws.draw import Draw, SliceBegins
from datasets_cli.replay.draws.priorities import Priorities, priorities_on
from datasets_cli.replay.draws.priority_files import are_priorities
from datasets_cli.replay.draws.protocol import Info
from datasets_cli.replay.draws.windows import SliceWindows
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.schema.mapping import usable_device


class PriorityDraw(Draw):
    """Draws rows in proportion to a power of their priority, or slices that begin at such rows.

        trajectory   0 0 0 0 0 1 1 1 2 2
        can begin    x x x     x           a slice of 3

    A row that leaves no room for a slice is never drawn as a first row, however high its priority,
    and the importance weights compare the rows that can be.
    """

    kind = "{} by priority"
    priorities: Priorities[np.ndarray] | Priorities[torch.Tensor]
    _highest: float  # of all priorities that ever were; below 0 before there was any
    _masked_for: SliceWindows | None  # slices that begin at the rows which can be drawn
    _lengths: torch.Tensor  # rows of the slice that begins at each row, int64

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
        self.max_capacity = whole_number("max_capacity", max_capacity, 1)
        if not dtype.is_floating_point or reduction not in REDUCTIONS:
            raise UsageError(
                "A prioritised sampler needs a floating dtype and one of the reductions "
                f"{', '.join(REDUCTIONS)}; found {dtype} and {reduction!r}."
            )
        self.dtype = dtype
        self.reduction = reduction
        self.max_priority_within_buffer = max_priority_within_buffer
        self.device = usable_device("cpu" if device is None else device)
        self.beta = not_negative("beta", beta)
        self._begin(not_negative("alpha", alpha), not_negative("eps", eps))

    @property
    def default_priority(self) -> float:
        """The priority of a new row: the highest so far, and 1 before there is any."""
        highest = self._highest
        if self.max_priority_within_buffer:
            known = self.priorities.known
            highest = float(known.max()) if len(known) else -1.0
        return highest if highest >= 0 else 1.0

    @property
    def greatest_weight(self) -> float:
        """What importance weights were divided by; see ``Priorities.greatest_weight``."""
        return self.priorities.greatest_weight(self.beta)

    def take(
        self, storage: Storage, items: Sized, count: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return rows int64 ``[count]`` and their importance weights ``priority_weight``."""
        self._fit(storage)
        rows, weights = self.priorities.draw(count, self.beta, generator)
        return rows, {("priority_weight",): weights.to(self.dtype)}

    def take_slices(
        self, storage: Storage, windows: SliceWindows, count: int, generator: torch.Generator
    ) -> tuple[SliceBegins, Info]:
        """Return the first rows of slices, drawn among those that leave room for one."""
        if self._masked_for is not windows:  # which are others after rows were written
            self._fit(storage)
            rows, lengths = windows.all_begins()
            allowed = torch.zeros(len(storage), dtype=torch.bool)
            allowed[rows] = True
            of_rows = torch.zeros(len(storage), dtype=torch.int64)
            of_rows[rows] = lengths
            self._lengths = of_rows.to(self.device)
            self.priorities.set_mask(allowed)
            self._masked_for = windows
        first, info = self.take(storage, storage, count, generator)
        return (first, None if windows.are_full else self._lengths[first]), info

    def set(self, rows: torch.Tensor, priority: torch.Tensor) -> None:
        """Give rows int64 ``[B]`` priorities ``[B]``, or one for all ``[]``; -1 is not a row."""
        self._highest = max(self._highest, self.priorities.set(rows, priority))

    def on_write(self, rows: torch.Tensor) -> None:
        """Give rows int64 ``[B]`` that were just written the default priority."""
        rows = rows.reshape(-1)
        self.reserve(int(rows.max()) + 1 if rows.numel() else 0)
        if self.max_priority_within_buffer:
            self.priorities.clear(rows)  # what they replace does not count any more
        self.set(rows, torch.tensor(self.default_priority, dtype=torch.float64))

    def reserve(self, num_rows: int) -> None:
        """Make room for the priorities of so many rows."""
        if num_rows <= self.max_capacity:
            return
        self.max_capacity = max(num_rows, 2 * self.max_capacity)  # rarely: each time all are copied
        before = self.priorities
        self._begin_with(before.alpha, before.eps)
        self.priorities.fill(before.known)

    def restart(self) -> None:
        """Forget every row."""
        self._begin(self.priorities.alpha, self.priorities.eps)

    def state_dict(self) -> StateDict:
        """Return what it takes to continue with the same draws; one priority for each row."""
        return {
            "alpha": self.priorities.alpha,
            "beta": self.beta,
            "eps": self.priorities.eps,
            "max_priority": self._highest,
            "priorities": self.priorities.known.clone(),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Continue where ``state`` was taken."""
        priorities = torch.as_tensor(state["priorities"])
        highest = torch.as_tensor(state["max_priority"], dtype=torch.float64)
        if (
            priorities.ndim != 1
            or highest.ndim
            or not (are_priorities(priorities) and are_priorities(highest))
        ):
            raise UsageError(
                "The state's priorities are not finite numbers from 0 on, one a row, with -1 for a "
                "row that has none. Save it again."
            )
        names = "alpha", "beta", "eps"
        alpha, beta, eps = (not_negative(name, state[name]) for name in names)
        self.beta = beta
        self._begin(alpha, eps)
        self.reserve(len(priorities))
        self._highest = float(highest)
        self.priorities.fill(priorities)

    def _fit(self, storage: Storage) -> None:
        """Make the rows that can be drawn those of the storage."""
        if not self.priorities.has_size(len(storage)):
            self.reserve(len(storage))
            default = self.default_priority
            self.priorities.resize(len(storage), default)
            self._highest = max(self._highest, default)

    def _begin(self, alpha: float, eps: float) -> None:
        self._begin_with(alpha, eps)
        self._highest = -1.0

    def _begin_with(self, alpha: float, eps: float) -> None:
        self.priorities = priorities_on(self.device, self.max_capacity, alpha, eps)
        self._masked_for = None

    def __getstate__(self) -> StateDict:
        return {**self.__dict__, "_masked_for": None}  # worked out again from the storage


def not_negative(name: str, value: float) -> float:
    """Return a number from 0 on, as a user gave it."""
    if isinstance(value, str) or not 0 <= value < math.inf:
        raise UsageError(f"{name} is a number from 0 on, not {value!r}.")
    return float(value)
