"""Where rows have goals and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.goals.rules import GoalRule
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.schema.columns import DONE, TERMINATED, Key, show_key

RELABELLED = ("relabelled",)
"""Where batches say which rows have a new goal."""

SUCCESS = ("next", "info", "success")
"""Where Minari's rows say whether a step was a success."""


@dataclass(frozen=True)
class GoalKeys:
    """Where goals and what follows from them are."""

    achieved: Key
    desired: Key
    reward: Key
    success: Key = SUCCESS
    needs_success: bool = False

    @property
    def reached(self) -> Key:
        """What the step achieved."""
        return ("next", *self.achieved)

    def check(self, storage: Storage, rule: GoalRule) -> None:
        """Check that rows have what is read and changed."""
        if self.achieved == self.desired:
            raise UsageError(
                f"achieved_goal_key and desired_goal_key are both {show_key(self.achieved)}; what "
                "was achieved would be written over by goals. Name two entries."
            )
        if storage.row_batch_size:
            raise UsageError(
                f"Each row has a batch size of its own, {list(storage.row_batch_size)}, and a goal "
                "is that of a single step. Write steps as rows."
            )
        ends = () if rule.terminated is None else (TERMINATED, DONE)
        success = (self.success,) if self.needs_success else ()
        if success and rule.success is None:
            raise UsageError(
                f"success_key names {show_key(self.success)}, and the rule does not say what is a "
                "success. Give GoalRule a success, or leave out success_key."
            )
        needed = (self.reached, self.desired, self.reward, *ends, *success)
        if missing := [show_key(key) for key in needed if not storage.has(key)]:
            raise UsageError(
                f"Goals need {', '.join(map(show_key, needed))}, and the rows do not have "
                f"{', '.join(missing)} as one tensor. Name the keys that they have, with "
                "achieved_goal_key, desired_goal_key, reward_key and success_key."
            )
        if storage.has(RELABELLED):
            raise UsageError(
                f"The rows have {show_key(RELABELLED)}, where batches say which goals are new. "
                "Rename it."
            )

    def goals(self, storage: Storage, rows: torch.Tensor) -> torch.Tensor:
        """Return what the steps of the rows int64 ``[M]`` achieved, ``[M, ...]``."""
        found = storage.entry(self.reached, rows)
        if found is None:
            raise UsageError(f"Some rows do not have {show_key(self.reached)}. Write it with each.")
        return found
