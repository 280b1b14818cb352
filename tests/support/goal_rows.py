"""Rows with goals on a line, and the slow way to tell what hindsight may make of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from tensordict import TensorDict

from datasets_cli import GoalRule, HERSampler, LazyTensorStorage, ReplayBuffer

ACHIEVED = ("observation", "achieved_goal")
DESIRED = ("observation", "desired_goal")
RULE = GoalRule.sparse(1.0, reached=0.0, missed=-1.0, terminates=True)

FAR = -50.0
"""The goal of every row; no step reaches it."""


def goal_rows(
    lengths: Sequence[int],
    first: int = 0,
    cut: Sequence[int] = (),
    dtype: torch.dtype = torch.float64,
) -> TensorDict:
    """Return trajectories whose step in row r achieves the number r; all terminate but some."""
    count = sum(lengths)
    number = torch.arange(first, first + count, dtype=dtype).unsqueeze(1)
    ends = torch.tensor(lengths, dtype=torch.int64).cumsum(0) - 1
    done, truncated = torch.zeros(2, count, 1, dtype=torch.bool)
    done[ends] = True
    truncated[ends[[*cut]]] = True
    goal = torch.full((count, 1), FAR, dtype=dtype)
    following = {
        "observation": {"achieved_goal": number, "desired_goal": goal.clone()},
        "reward": torch.full((count, 1), -1.0),
        "done": done,
        "terminated": done & ~truncated,
        "truncated": truncated,
    }
    observation = {"achieved_goal": number - 1, "desired_goal": goal}
    return TensorDict({"observation": observation, "next": following}, [count])


def buffer_of(
    rows: TensorDict | None = None, size: int = 100, rule: Any = RULE, **arguments: Any
) -> ReplayBuffer:
    sampler = HERSampler(rule, **arguments)
    buffer = ReplayBuffer(storage=LazyTensorStorage(size), sampler=sampler, seed=7)
    if rows is not None:
        buffer.extend(rows)
    return buffer


def trajectories_around(done: Sequence[bool], cursor: int, is_full: bool) -> list[list[int]]:
    """Return the rows of each trajectory of a ring, walking it from its oldest row on."""
    count = len(done)
    found: list[list[int]] = [[]]
    for number in range(count):
        row = (cursor + number) % count if is_full else number
        found[-1].append(row)
        if done[row]:
            found.append([])
    return [rows for rows in found if rows]


def rows_for_goals(strategy: str, row: int, walked: list[list[int]]) -> list[int]:
    [own] = [rows for rows in walked if row in rows]
    if strategy == "random":
        return sorted(itertools.chain(*walked))
    if strategy == "final":
        return own[-1:]
    return own if strategy == "episode" else own[own.index(row) :]
