"""RelabelGoal: rewards and ends of steps made anew by how near each came to its goal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from tensordict import TensorDict

from datasets_cli.errors import UsageError
from datasets_cli.replay.goals.relabel import GoalKeys, follow
from datasets_cli.replay.goals.rules import GoalRule
from datasets_cli.replay.nested_keys import NestedKey, key_of
from datasets_cli.replay.transforms.key_map import required_entry
from datasets_cli.replay.transforms.transform import Transform
from datasets_cli.schema.columns import REWARD, TERMINATED, show_key


class RelabelGoal(Transform):
    """Makes the reward of each step anew, from what it achieved.

    A transform of batches, or the function of ``preprocess``. What the rule says of ``terminated``,
    as ``terminates=True`` does, changes ``done`` and ``truncated``, too; and
    ``("next", "info", "success")`` is made anew where rows have it. A step that terminated and
    whose next state is not recorded, but zeros, keeps what is stored.

    Args:
        rule: what follows from a goal: ``GoalRule.sparse(0.5, terminates=True)``.
        achieved: where rows have what their step achieved: as many numbers of it, the first ones,
            as a goal has.
        goal: where they have their goal; or the numbers of one goal of all.
    """

    def __init__(
        self,
        rule: GoalRule,
        *,
        achieved: NestedKey = ("next", "observation", "achieved_goal"),
        goal: NestedKey | Sequence[float] = ("next", "observation", "desired_goal"),
    ) -> None:
        self.rule, self.achieved, self.goal = rule, key_of(achieved), goal

    def __call__(self, batch: TensorDict) -> TensorDict:
        rows = batch.reshape(-1)
        reached = required_entry(rows, self.achieved, "RelabelGoal").reshape(len(rows), -1)
        if isinstance(self.goal[0], str):
            key = key_of(cast(NestedKey, self.goal))
            desired = required_entry(rows, key, "RelabelGoal").reshape(len(rows), -1)
        else:
            dtype = reached.dtype if reached.is_floating_point() else torch.float64
            desired = torch.as_tensor(self.goal, dtype=dtype, device=reached.device)
            desired = desired.expand(len(rows), -1)  # a rule is given a goal for each row
        if (size := desired.shape[1]) > reached.shape[1]:
            name = show_key(self.achieved)
            raise UsageError(f"A goal is {size} numbers, and {name} is fewer. Name another.")
        ended = required_entry(rows, TERMINATED, "RelabelGoal").reshape(-1)
        is_known = ~(ended & (reached == 0).all(1))
        required_entry(rows, REWARD, "RelabelGoal")
        keys = GoalKeys(self.achieved, self.achieved, REWARD)
        follow(rows, is_known, reached[:, :size], desired, keys, self.rule)
        return rows.reshape(batch.batch_size)
