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
    """The functions that compute rewards and flags from goals, each once for a whole batch.

    Each takes the achieved goals ``[B, ...]``, the desired goals ``[B, ...]``, and the batch, a
    TensorDict ``[B]`` with the desired goals, which it must not modify.

    Args:
        reward: returns rewards, ``[B]`` or in the shape of the stored rewards.
        terminated: returns whether a step ends its trajectory, bool ``[B]``. None keeps the stored
            flags, for goals that do not end a trajectory.
        success: returns whether a step is a success, bool ``[B]``; None keeps the stored flags.
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
        """Return a rule with one reward near the goal, and another one elsewhere.

        Args:
            threshold: the distance up to which the goal is reached.
            reached: the reward there.
            missed: the reward elsewhere.
            terminates: whether exactly the steps that reach the goal end their trajectories;
                otherwise the stored flags stay.

        Raises:
            UsageError: the threshold is negative or not finite.
        """
        is_number = isinstance(threshold, int | float)
        if not is_number or not 0 <= threshold < math.inf:
            raise UsageError(
                f"threshold must be a finite distance, not negative; found {threshold!r}.",
                argument="threshold",
                expected="a finite distance, not negative",
                found=threshold,
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
    """Return the Euclidean distances ``[B]`` of goals ``[B, n]`` or ``[B]``."""
    apart = (achieved - desired).reshape(len(achieved), -1)
    if not apart.is_floating_point():
        apart = apart.double()
    # Not vector_norm: environments sum squares with numpy; stored rewards are equal bit for bit.
    return apart.square().sum(-1).sqrt()
