"""The prioritised sampler: it draws rows in proportion to priorities that training gives back."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sized
from pathlib import Path
from typing import Any

import numpy as np
import torch

from datasets_cli.errors import DamagedDataset, MissingFile, UsageError
from datasets_cli.replay.arguments import REDUCTIONS, Numbers, StateDict, whole_number
from datasets_cli.replay.samplers.priorities import Priorities, priorities_on
from datasets_cli.replay.samplers.protocol import Draw, Info, PrioritySampler, SliceBegins
from datasets_cli.replay.samplers.rows import SingleRows
from datasets_cli.replay.samplers.windows import SliceWindows
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.storages.state_files import (
    SETTINGS_BYTES,
    open_file,
    read_state,
    whole,
    wrong,
)
from datasets_cli.schema.mapping import usable_device

METADATA = "sampler_metadata.json"
PRIORITIES = "priorities.memmap"
SUM_TREE = "sumtree.memmap"
SCHEMA_VERSION = 2


def write_priorities(folder: Path, state: StateDict, max_capacity: int) -> None:
    """Write the state of ``Priorities`` into a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SUM_TREE).unlink(missing_ok=True)  # of an older dump
    (folder / PRIORITIES).write_bytes(np.asarray(state["priorities"].cpu().numpy(), "<f8").data)
    metadata = {f"_{name}": state[name] for name in ("alpha", "beta", "eps", "max_priority")}
    metadata |= {"_max_capacity": max_capacity, "_schema_version": SCHEMA_VERSION}
    metadata |= {"_num_rows": len(state["priorities"]), "_kind": state["kind"]}
    (folder / METADATA).write_text(json.dumps(metadata), encoding="utf-8")


def read_priorities(folder: Path) -> StateDict:
    """Return the state of ``Priorities`` that a folder holds."""
    path = folder / METADATA
    if not os.path.lexists(path):
        raise MissingFile(
            f"{folder} has no priorities ({METADATA}): nothing was dumped there, or a buffer with "
            "another kind of sampler. Load that into a buffer with a sampler of that kind."
        )
    metadata = read_state(path, SETTINGS_BYTES)
    capacity = whole(metadata, "_max_capacity", path)
    version = whole({"_schema_version": 0} | metadata, "_schema_version", path)
    if version > SCHEMA_VERSION:
        raise UsageError(f"{folder} has schema {version}; this version reads up to 2. Upgrade.")
    state: StateDict = {
        name: _number(metadata, f"_{name}", path, 0) for name in ("alpha", "beta", "eps")
    }
    if version == SCHEMA_VERSION:
        num_rows = whole(metadata, "_num_rows", path, capacity)
        priorities = _numbers(folder / PRIORITIES, capacity, -1, num_rows)
        highest = _number(metadata, "_max_priority", path, -1)
    else:
        priorities = _from_leaves(_numbers(folder / SUM_TREE, capacity, 0), **state)
        # Before schema 1 this could be a transformed number: pytorch/rl#3925.
        highest = priorities.max(initial=-1.0) if version == 0 else _highest(metadata, path)
    if "_kind" in metadata:  # TorchRL writes none
        state["kind"] = metadata["_kind"]
    return state | {"max_priority": float(highest), "priorities": torch.from_numpy(priorities)}


def are_priorities(numbers: torch.Tensor, unknown: float = -1) -> bool:
    """Return whether numbers, of any shape, are finite priorities, or mark rows without one."""
    known = (numbers >= 0) | (numbers == unknown)
    return bool((known & numbers.isfinite()).all())


def _number(metadata: StateDict, name: str, path: Path, least: float) -> float:
    """Return a finite number of the settings."""
    given: Any = metadata.get(name)
    try:
        number = float(given) if type(given) in (int, float) else math.nan
    except OverflowError:
        number = math.inf
    if not least <= number < math.inf:
        raise wrong(path, name, f"a number from {least} on", given)
    return number


def _highest(metadata: StateDict, path: Path) -> float:
    """Return the highest priority of TorchRL's settings: a number and its row, or the number."""
    found = metadata.get("_max_priority")
    first = found[0] if isinstance(found, list) and found else found
    return _number({"_max_priority": first}, "_max_priority", path, -1)


def _numbers(path: Path, capacity: int, least: float, num_rows: int | None = None) -> np.ndarray:
    """Return the float64 ``[n]`` of a file, finite and from ``least`` on."""
    # They are `num_rows`, or at most `capacity` where that is not known.
    try:
        with open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            fits = size <= 8 * capacity if num_rows is None else size == 8 * num_rows
            if size % 8 or not fits:
                expected = f"at most {capacity}" if num_rows is None else f"{num_rows}"
                raise DamagedDataset(
                    f"{path} has {size} bytes; expected float64 of {expected} rows. Dump the "
                    "buffer again."
                )
            numbers = np.frombuffer(file.read(size), "<f8").astype(np.float64)
    except FileNotFoundError as error:
        raise MissingFile(f"{path} is missing: only a part of a buffer is there.") from error
    if not are_priorities(torch.from_numpy(numbers), least):
        raise DamagedDataset(
            f"{path} has numbers that are not priorities, such as NaN. Dump the buffer again."
        )
    return numbers


def _from_leaves(leaves: np.ndarray, alpha: float, beta: float, eps: float) -> np.ndarray:
    """Return the priorities float64 ``[n]`` whose powers are ``leaves``, up to the last known."""
    leaves = leaves[: np.flatnonzero(leaves)[-1] + 1] if leaves.any() else leaves[:0]
    # With alpha 0 every power is 1, and so is then every priority: nothing better is known.
    raw = leaves ** (1 / alpha) - eps if alpha else np.ones_like(leaves)
    return np.where(leaves > 0, raw.clip(min=0), -1.0)


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
    def max_weight(self) -> float:
        """What importance weights were divided by; see ``Priorities.max_weight``."""
        return self.priorities.max_weight(self.beta)

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


class PrioritizedSampler(SingleRows, PrioritySampler):
    """Draws rows in proportion to a power of their priority.

    >>> sampler = PrioritizedSampler(max_capacity=1000, alpha=0.7, beta=0.5)
    >>> sampler.update_priority(torch.arange(3), torch.tensor([0.1, 2.0, -1.0]))

    A batch has the importance weight of each row, ``priority_weight`` ``[B]``.

    Args:
        max_capacity: rows that there is room for at first; more take more.
        alpha: how much priorities matter; 0 draws uniformly.
        beta: how much importance weights correct for it; 1 corrects fully.
        eps: added to every priority, so that none is 0.
        dtype: of the importance weights; priorities and their sums are float64.
        reduction: how several numbers a row become one priority: ``"max"``, ``"min"``, ``"mean"``
            or ``"median"``.
        max_priority_within_buffer: new rows get the highest priority among the rows that are there,
            rather than the highest that ever was.
        device: where rows are drawn; the CPU by default.

    Raises:
        UsageError: an argument is out of its range.
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
        super().__init__(
            PriorityDraw(
                max_capacity, alpha, beta, eps, dtype, reduction, max_priority_within_buffer, device
            )
        )

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(alpha={self.alpha}, beta={self.beta}, eps={self.eps}, "
            f"reduction={self.draw.reduction!r})"
        )

    @property
    def max_capacity(self) -> int:
        """Rows that there is room for; it grows with the storage."""
        return self.draw.max_capacity

    @property
    def alpha(self) -> float:
        """How much priorities matter; setting it works out the weight of every row again."""
        return self.draw.priorities.alpha

    @alpha.setter
    def alpha(self, value: float) -> None:
        self.draw.priorities.alpha = not_negative("alpha", value)

    @property
    def beta(self) -> float:
        """How much importance weights correct for the draws."""
        return self.draw.beta

    @beta.setter
    def beta(self, value: float) -> None:
        self.draw.beta = not_negative("beta", value)

    @property
    def eps(self) -> float:
        """What is added to every priority."""
        return self.draw.priorities.eps

    @property
    def default_priority(self) -> float:
        """The priority of a new row: the highest so far, and 1 before there is any."""
        return self.draw.default_priority

    def update_priority(self, index: Numbers, priority: Numbers) -> None:
        """Give rows new priorities.

        Args:
            index: rows int64 ``[B]``, or of any shape; -1 is passed over: a writer returns it for a
                row that it refused. Of equal rows the last counts.
            priority: one number for all; or one a row, such as ``[B]`` or ``[B, 1]``; or several a
                row, ``[B, T]``, which are reduced. Their sign does not matter.

        Raises:
            UsageError: a priority is NaN, infinite or complex, the shapes do not fit together, or a
                row is not a whole number from -1 up to the capacity.
        """
        rows = torch.as_tensor(index).reshape(-1)
        if rows.dtype != torch.int64:
            is_whole = not (rows.is_floating_point() or rows.is_complex())
            if rows.numel() and (rows.dtype == torch.bool or not is_whole):
                raise UsageError(f"Rows are whole numbers, int64, not {rows.dtype}.")
            rows = rows.long()
        values = torch.as_tensor(priority)
        if values.is_complex():
            raise UsageError(f"Priorities are real numbers, not {values.dtype}. Give their .abs().")
        if values.dtype not in (torch.float32, torch.float64):
            values = values.double()  # whole numbers have no safe absolute value
        self.draw.set(rows, self._one_a_row(values, len(rows)))

    def on_write(self, rows: torch.Tensor) -> None:
        """Give rows int64 ``[B]`` that were just written the default priority."""
        self.draw.on_write(rows)

    def dumps(self, path: str | Path) -> None:
        """Write the priorities into the folder ``path``, which is made."""
        write_priorities(Path(path), self.state_dict(), self.max_capacity)

    def loads(self, path: str | Path) -> None:
        """Read the priorities that ``dumps``, or TorchRL 0.14, wrote."""
        state = read_priorities(Path(path))
        self.load_state_dict({"kind": self.kind} | state)

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
        return REDUCTIONS[self.draw.reduction](priority.abs().reshape(num_rows, -1))
