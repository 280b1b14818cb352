"""What prioritised samplers have in common: priorities, and how they change."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import REDUCTIONS, Numbers, StateDict, whole_number
from datasets_cli.replay.draws.priorities import Priorities, priorities_on
from datasets_cli.replay.draws.priority_files import (
    are_priorities,
    read_priorities,
    write_priorities,
)
from datasets_cli.replay.draws.protocol import Info, KindSampler, PrioritySampler, check_kind
from datasets_cli.replay.storages.protocol import Storage, is_writable


class Prioritized(KindSampler, PrioritySampler):
    """What prioritised samplers have in common: priorities, and how they change."""

    priorities: Priorities[np.ndarray] | Priorities[torch.Tensor]
    _highest: float  # of all priorities that ever were; below 0 before there was any

    def __init__(
        self,
        max_capacity: int,
        alpha: float,
        beta: float,
        eps: float,
        dtype: torch.dtype,
        reduction: str,
        max_priority_within_buffer: bool,
        device: torch.device | str | None,
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
        self.device = torch.device("cpu" if device is None else device)
        self.revision = 0  # raised whenever rows were written or cleared
        self._rounds_up = False  # whether the storage may have more rows than were asked for
        self._beta = _not_negative("beta", beta)
        self._start(_not_negative("alpha", alpha), _not_negative("eps", eps))

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(alpha={self.alpha}, beta={self.beta}, eps={self.eps}, "
            f"reduction={self.reduction!r})"
        )

    @abstractmethod
    def sample(
        self, storage: Storage, batch_size: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return row numbers int64 ``[B]`` and columns that describe the draw."""

    @property
    def alpha(self) -> float:
        """How much priorities matter; setting it works out the weight of every row again."""
        return self.priorities.alpha

    @alpha.setter
    def alpha(self, value: float) -> None:
        self.priorities.alpha = _not_negative("alpha", value)

    @property
    def beta(self) -> float:
        """How much importance weights correct for the draws."""
        return self._beta

    @beta.setter
    def beta(self, value: float) -> None:
        self._beta = _not_negative("beta", value)

    @property
    def eps(self) -> float:
        """What is added to every priority."""
        return self.priorities.eps

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

    def follow(self, storage: Storage) -> None:
        """Take the rows of a storage from now on.

        One of several dimensions rounds its size up to a whole step with its first rows; the
        sampler then gets room for as many.

        Raises:
            UsageError: the storage has room for more rows than this sampler.
        """
        room = storage.max_size if is_writable(storage) else len(storage)
        if room > self.max_capacity:
            raise UsageError(
                f"{type(self).__name__} has priorities for {self.max_capacity} rows, and the "
                f"storage has room for {room}. Give the sampler max_capacity={room}, or the "
                f"storage max_size={self.max_capacity}."
            )
        self._rounds_up = storage.ndim > 1

    def update_priority(self, index: Numbers, priority: Numbers) -> None:
        """Give rows new priorities.

        Args:
            index: rows int64 ``[B]``, or of any shape; -1 is passed over: a writer returns it for a
                row that it refused. Of equal rows the last counts.
            priority: one number for all; or one a row, such as ``[B]`` or ``[B, 1]``; or several a
                row, ``[B, T]``, which are reduced. Their sign does not matter.

        Raises:
            UsageError: a priority is NaN, infinite or complex, the shapes do not fit together, or a
                row is no whole number from -1 up to the capacity.
        """
        rows = torch.as_tensor(index).reshape(-1)
        if rows.dtype != torch.int64:
            if rows.numel() and (rows.dtype == torch.bool or not _is_whole(rows)):
                raise UsageError(f"Rows are whole numbers, int64, not {rows.dtype}.")
            rows = rows.long()
        values = torch.as_tensor(priority)
        if values.is_complex():
            raise UsageError(f"Priorities are real numbers, not {values.dtype}. Give their .abs().")
        if values.dtype not in (torch.float32, torch.float64):
            values = values.double()  # whole numbers have no safe absolute value
        values = self._one_a_row(values, len(rows))
        self._highest = max(self._highest, self.priorities.set(rows, values))

    def on_write(self, rows: torch.Tensor) -> None:
        """Give rows int64 ``[B]`` that were just written the default priority."""
        self._reserve(int(rows.max()) + 1 if rows.numel() else 0)
        if self.max_priority_within_buffer:
            self.priorities.clear(rows.reshape(-1))  # what they replace does not count any more
        self.update_priority(rows, self.default_priority)
        self.revision += 1

    def on_clear(self) -> None:
        """Forget every row."""
        self._start(self.alpha, self.eps)

    def state_dict(self) -> StateDict:
        """Return what it takes to continue with the same draws; one priority for each row."""
        return super().state_dict() | {
            "alpha": self.alpha,
            "beta": self.beta,
            "eps": self.eps,
            "max_priority": self._highest,
            "priorities": self.priorities.known.clone(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state`` was taken.

        Raises:
            UsageError: it has more rows than this capacity, or a number is out of its range, or it
                is of another kind of sampler.
        """
        check_kind(self.kind, state)
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
        if len(priorities) > self.max_capacity and not self._rounds_up:
            raise UsageError(
                f"The state has the priorities of {len(priorities)} rows; this sampler's "
                f"max_capacity is {self.max_capacity}."
            )
        names = "alpha", "beta", "eps"
        alpha, beta, eps = (_not_negative(name, state[name]) for name in names)
        self._beta = beta
        self._start(alpha, eps)
        self._reserve(len(priorities))
        self._highest = float(highest)
        self.priorities.fill(priorities)

    def dumps(self, path: str | Path) -> None:
        """Write the priorities into the folder ``path``, which is made."""
        write_priorities(Path(path), self.state_dict(), self.max_capacity)

    def loads(self, path: str | Path) -> None:
        """Read the priorities that ``dumps``, or TorchRL 0.14, wrote.

        Raises:
            FileNotFoundError: nothing was written there.
            UsageError: they were written with another capacity.
        """
        state = read_priorities(Path(path), self.max_capacity, self._rounds_up)
        self.load_state_dict({"kind": self.kind} | state)

    def _start(self, alpha: float, eps: float) -> None:
        self.priorities = priorities_on(self.device, self.max_capacity, alpha, eps)
        self._highest = -1.0
        self.revision += 1

    def _reserve(self, num_rows: int) -> None:
        """Make room for the rows of a storage that rounded its size up."""
        if not self._rounds_up or num_rows <= self.priorities.capacity:
            return
        known = self.priorities.known
        room = max(num_rows, 2 * self.priorities.capacity)  # rarely: each time all are copied
        self.priorities = priorities_on(self.device, room, self.alpha, self.eps)
        self.priorities.fill(known)
        self.revision += 1  # what was masked is masked once more

    def _fit(self, storage: Storage) -> None:
        """Make the rows that can be drawn those of the storage."""
        if not self.priorities.has_size(len(storage)):
            self._reserve(len(storage))
            default = self.default_priority
            self.priorities.resize(len(storage), default)
            self._highest = max(self._highest, default)

    def _one_a_row(self, priority: torch.Tensor, num_rows: int) -> torch.Tensor:
        """Return priorities ``[num_rows]``, or ``[]`` where one number is for all."""
        if priority.numel() == 1:
            return priority.reshape(())
        if priority.numel() == num_rows:
            return priority.reshape(-1)
        if num_rows == 0 or priority.ndim == 0 or len(priority) != num_rows:
            raise UsageError(
                f"Priorities of shape {list(priority.shape)} do not fit {num_rows} rows. Give one "
                "number, or one a row, or several a row with the row first."
            )
        return REDUCTIONS[self.reduction](priority.abs().reshape(num_rows, -1))


def _is_whole(rows: torch.Tensor) -> bool:
    return not (rows.is_floating_point() or rows.is_complex())


def _not_negative(name: str, value: float) -> float:
    if isinstance(value, str) or not 0 <= value < math.inf:
        raise UsageError(f"{name} is a number from 0 on, not {value!r}.")
    return float(value)
