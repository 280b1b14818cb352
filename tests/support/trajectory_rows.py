"""A storage of nothing but trajectories, for samplers, and rules to judge what they draw."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch

from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.trajectories.bounds import TrajectoryIndex, TrajectoryKeys
from datasets_cli.schema.columns import Key
from datasets_cli.schema.tree import Tree


class TrajectoryRows(Storage):
    """A storage whose only column is the row number."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self.offsets = torch.tensor([0, *itertools.accumulate(lengths)])

    def __len__(self) -> int:
        return int(self.offsets[-1])

    def has(self, key: Key) -> bool:
        return key == ("row",)

    def trajectories(self, keys: TrajectoryKeys) -> TrajectoryIndex:
        return TrajectoryIndex(self.offsets[:-1], self.offsets.diff(), 1, len(self))

    def scalar_column(self, key: Key) -> torch.Tensor:
        return torch.arange(len(self)).unsqueeze(1)

    def gather(self, index: torch.Tensor) -> Tree:
        return {"row": index.clone()}


def chi_square_score(counts: np.ndarray, expected: np.ndarray, freedom: int | None = None) -> float:
    """Return how many standard deviations the counts are off: within 4 is what chance does.

    The cube root of a chi-square statistic over its degrees of freedom is nearly normal (Wilson and
    Hilferty, 1931).
    """
    assert (expected > 5).all(), "too few draws for a chi-square test"
    freedom = len(counts) - 1 if freedom is None else freedom
    statistic = float(((counts - expected) ** 2 / expected).sum())
    spread = 2 / (9 * freedom)
    return float(((statistic / freedom) ** (1 / 3) - (1 - spread)) / spread**0.5)
