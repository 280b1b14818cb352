"""Rules: what reward follows from a goal, and whether it was reached."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from tensordict import TensorDictBase

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import Numbers

GoalFunction = Callable[[torch.Tensor, torch.Tensor, TensorDictBase], Numbers]
"""Takes what rows achieved ``[B, ...]``, their desired goals ``[B, ...]`` and the batch ``[B]``."""


@dataclass(frozen=True)
class GoalRule:
    """What follows from goals. Each function is called once for a batch, of all its rows.

    It takes what the step of each row achieved, ``[B, ...]``, the goal that is now desired,
    ``[B, ...]``, and the batch, a TensorDict ``[B]`` with that goal, which it does not change.

    Args:
        reward: returns rewards, ``[B]`` or in the shape of those stored.
        terminated: returns whether a step ends its trajectory, bool ``[B]``; None leaves what is
            stored, which is right where goals end none.
        success: returns whether a step is a success, bool ``[B]``; None leaves what is stored.
    """

    reward: GoalFunction
    terminated: GoalFunction | None = None
    success: GoalFunction | None = None

    @classmethod
    def sparse(
        cls,
        threshold: float,
        *,
        reached: float = 1.0,
        missed: float = 0.0,
        terminates: bool = False,
    ) -> GoalRule:
        """Return the rule of one reward near the goal, and another one elsewhere.

        Args:
            threshold: the distance up to which the goal is reached.
            reached: the reward there.
            missed: the reward elsewhere.
            terminates: whether a step that reaches the goal, and no other, ends its trajectory;
                otherwise what is stored stays.

        Raises:
            UsageError: the threshold is not a number from 0 on.
        """
        is_number = isinstance(threshold, int | float)
        if not is_number or not 0 <= threshold < math.inf:
            raise UsageError(
                "threshold is a distance from 0 on, up to which a goal is reached; not "
                f"{threshold!r}."
            )
        near = Near(threshold)
        return cls(_Either(near, reached, missed), near if terminates else None, near)


@dataclass(frozen=True)
class Near:
    """Whether goals were reached, bool ``[B]``: up to some Euclidean distance."""

    threshold: float

    def __call__(
        self, achieved: torch.Tensor, desired: torch.Tensor, batch: TensorDictBase
    ) -> torch.Tensor:
        """Return whether ``achieved`` ``[B, n]`` is near ``desired`` ``[B, n]``."""
        return distance(achieved, desired) <= self.threshold


@dataclass(frozen=True)
class _Either:
    """Rewards: one where a goal is near, another one elsewhere."""

    near: Near
    reached: float
    missed: float

    def __call__(
        self, achieved: torch.Tensor, desired: torch.Tensor, batch: TensorDictBase
    ) -> torch.Tensor:
        """Return the rewards float64 ``[B]``."""
        near = self.near(achieved, desired, batch).double()
        return near * self.reached + (1 - near) * self.missed


def distance(achieved: torch.Tensor, desired: torch.Tensor) -> torch.Tensor:
    """Return the Euclidean distances ``[B]`` of goals ``[B, n]``, n from 1 on, or ``[B]``."""
    apart = (achieved - desired).reshape(len(achieved), -1)
    if not apart.is_floating_point():
        apart = apart.double()
    # Not vector_norm: numpy sums squares too, and a stored reward is to come out bit for bit.
    return apart.square().sum(-1).sqrt()
