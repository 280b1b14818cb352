"""Criteria: what is true or false of a trajectory, joined, negated, or said by a function."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import NestedKey
from datasets_cli.replay.queries.leaves import Leaves, Rollout, RowLeaves
from datasets_cli.replay.queries.trajectory import Trajectory

Keys = frozenset[NestedKey]


class Criterion(Protocol):
    """What is true or false of a trajectory."""

    @property
    def keys(self) -> Keys | None:
        """The entries that it reads; None where that is not known."""

    @property
    def reads_leaves(self) -> bool:
        """Whether numbers of the rows are enough for it, so that no row is read whole."""

    def mask(self, leaves: Leaves) -> np.ndarray:
        """Return which trajectories it is true of, bool ``[K]``."""

    def holds(self, trajectory: Trajectory) -> bool:
        """Tell whether it is true of one trajectory."""


def leaves_of(trajectory: Trajectory) -> RowLeaves:
    """Return what a condition reads of one trajectory."""
    if not isinstance(trajectory, Trajectory):
        raise UsageError(
            f"A condition is called with a Trajectory, not with {type(trajectory).__name__}. "
            "iter_trajectories(rows) gives those of a TensorDict."
        )
    length = trajectory.length
    return RowLeaves(Rollout(trajectory.data), torch.arange(length), np.array([length]))


@dataclass(frozen=True)
class Joined:
    """Both criteria, or one of them."""

    operator: Literal["&", "|"]
    one: Criterion
    other: Criterion

    @property
    def keys(self) -> Keys | None:
        """What either reads."""
        one, other = self.one.keys, self.other.keys
        return None if one is None or other is None else one | other

    @property
    def reads_leaves(self) -> bool:
        """Whether both do."""
        return self.one.reads_leaves and self.other.reads_leaves

    def mask(self, leaves: Leaves) -> np.ndarray:
        """Return which trajectories it is true of, bool ``[K]``."""
        one, other = self.one.mask(leaves), self.other.mask(leaves)
        joined: np.ndarray = one & other if self.operator == "&" else one | other
        return joined

    def holds(self, trajectory: Trajectory) -> bool:
        """Tell whether it is true of one trajectory; the second is not always asked."""
        if self.operator == "&":
            return self.one.holds(trajectory) and self.other.holds(trajectory)
        return self.one.holds(trajectory) or self.other.holds(trajectory)


@dataclass(frozen=True)
class Negated:
    """The opposite of another one."""

    one: Criterion

    @property
    def keys(self) -> Keys | None:
        """What that reads."""
        return self.one.keys

    @property
    def reads_leaves(self) -> bool:
        """Whether that does."""
        return self.one.reads_leaves

    def mask(self, leaves: Leaves) -> np.ndarray:
        """Return which trajectories it is true of, bool ``[K]``."""
        opposite: np.ndarray = ~self.one.mask(leaves)
        return opposite

    def holds(self, trajectory: Trajectory) -> bool:
        """Tell whether it is true of one trajectory."""
        return not self.one.holds(trajectory)


@dataclass(frozen=True)
class FunctionCriterion:
    """A user's function of a trajectory."""

    function: Callable[[Trajectory], Any]
    keys: Keys | None = None
    reads_leaves: bool = False

    def mask(self, leaves: Leaves) -> np.ndarray:
        """Refuse: a table has no rows to call a function with."""
        raise UsageError(
            f"{self.function!r} is a function of a trajectory, which a table does not have. Give "
            "filter() a function of the table, or a condition made of traj; query() takes both."
        )

    def holds(self, trajectory: Trajectory) -> bool:
        """Tell what the function says of one trajectory."""
        return is_true(self.function(trajectory), self.function)


def is_true(found: Any, function: Callable[..., Any]) -> bool:
    """Return what a user's function says as a bool."""
    size = math.prod(found.shape) if isinstance(found, np.ndarray | torch.Tensor) else 1
    if found is None or size != 1:
        shown = "None" if found is None else f"{type(found).__name__} of {size} values"
        raise UsageError(
            f"{function!r} must say whether it wants a trajectory: expected True or False, found "
            f"{shown}."
        )
    return bool(found)
