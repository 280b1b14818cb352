"""The reward of the previous step at the root of rows, computed on reading."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from datasets_cli.schema.bits import bits_of, to_array
from datasets_cli.schema.columns import REWARD, Column, Key
from datasets_cli.schema.tree import Tree, entry
from datasets_cli.store.layouts.protocol import GatheredRows, LayoutRows

PREVIOUS_REWARD: Key = ("reward",)


def with_previous_reward(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the columns with the previous reward, if they have rewards."""
    rewards = [column for column in columns if column.key == REWARD]
    if any(column.key[:1] == PREVIOUS_REWARD for column in columns):
        return columns
    return (*columns, *(replace(column, key=PREVIOUS_REWARD) for column in rewards))


class PreviousRewardRows:
    """The rows of a layout with the reward of the previous step; see ``LayoutRows``.

    trajectory      0    0    0    1    1
    next.reward     a    b    c    d    e
    reward          0    a    b    0    d
    """

    # starts: the first row of each trajectory, int64 `[K]`.

    def __init__(self, rows: LayoutRows, rewards: LayoutRows, starts: np.ndarray) -> None:
        self._rows, self._rewards, self._starts = rows, rewards, starts
        self.history = rows.history

    def gather(self, index: torch.Tensor) -> Tree:
        """Return copies of the rows ``index`` int64 ``[B]``; see ``LayoutRows.gather``."""
        tree = self._rows.gather(index)
        tree[PREVIOUS_REWARD[0]] = self._before(index)
        return tree

    def run(self, start: int, stop: int) -> Tree:
        """Return copies of the rows ``start`` to ``stop - 1``; see ``LayoutRows.run``."""
        tree = self._rows.run(start, stop)
        tree[PREVIOUS_REWARD[0]] = self._before(torch.arange(start, stop))
        return tree

    def read(self, index: torch.Tensor) -> GatheredRows:
        """Return copies of the rows ``index`` int64 ``[B]``; see ``LayoutRows.read``."""
        before = to_array(self._before(index))
        return self._rows.read(index).with_leaf(PREVIOUS_REWARD[0], before)

    def _before(self, index: torch.Tensor) -> torch.Tensor:
        """Return the previous rewards ``[B, 1]`` of the rows ``index`` int64 ``[B]``."""
        rows = index.cpu().numpy()
        starts = self._starts.take(self._starts.searchsorted(rows), mode="clip")
        reward: torch.Tensor = entry(self._rewards.gather((index - 1).clamp(min=0)), REWARD)
        first = torch.from_numpy((starts == rows).nonzero()[0]).to(reward.device)
        bits_of(reward).index_fill_(0, first, 0)
        return reward
