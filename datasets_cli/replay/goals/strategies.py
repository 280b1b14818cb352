"""Strategies: which step of which trajectory gives a row its new goal."""

from __future__ import annotations

import math
from enum import StrEnum

import torch


class HindsightStrategy(StrEnum):
    """Where new goals come from: what was reached by a step of ...

    Andrychowicz et al. (2017) name the first four, https://arxiv.org/abs/1707.01495.

    Attributes:
        FUTURE: the same trajectory from the row's own step on, each step alike.
        FINAL: the last step of the same trajectory.
        EPISODE: the same trajectory, each step alike.
        RANDOM: any row there is, each alike.
        GEOMETRIC: the same trajectory from the row's own step on, each step ``gamma`` times as
            likely as the one before; the shares of steps after its end go to those before, in
            proportion, as if drawn again.
    """

    FUTURE = "future"
    FINAL = "final"
    EPISODE = "episode"
    RANDOM = "random"
    GEOMETRIC = "geometric"


def goal_steps(
    strategy: HindsightStrategy,
    step: torch.Tensor,
    lengths: torch.Tensor,
    uniform: torch.Tensor,
    gamma: float,
) -> torch.Tensor:
    """Return the steps int64 ``[B]`` that give goals, each of the trajectory of its row."""
    # step: of each row in its trajectory, int64 `[B]`.
    # lengths: steps of the trajectory of each row, int64 `[B]`.
    # uniform: float64 `[B]` in [0, 1), which decides.
    if strategy is HindsightStrategy.FINAL:
        return lengths - 1
    if strategy is HindsightStrategy.EPISODE:
        return uniform_below(lengths, uniform)
    ahead = lengths - step  # steps from the row's own to the end
    if strategy is HindsightStrategy.FUTURE:
        return step + uniform_below(ahead, uniform)
    return step + geometric_below(ahead, uniform, gamma)


def uniform_below(limit: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """Return whole numbers int64 ``[B]`` from 0 to ``limit - 1``, each alike."""
    # A product may be rounded up to the limit itself.
    return torch.minimum((uniform * limit).long(), limit - 1)


def geometric_below(limit: torch.Tensor, uniform: torch.Tensor, gamma: float) -> torch.Tensor:
    """Return whole numbers int64 ``[B]`` from 0 to ``limit - 1``, k in proportion to gamma ** k."""
    if gamma == 0:
        return torch.zeros_like(limit)
    # P(K < k) = (1 - gamma ** k) / (1 - gamma ** limit), solved for k.
    log_gamma = math.log(gamma)
    below = -torch.expm1(limit * log_gamma)
    found = (torch.log1p(-uniform * below) / log_gamma).long()
    return torch.minimum(found, limit - 1)
