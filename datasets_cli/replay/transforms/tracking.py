"""Transforms that say where in its trajectory a step is."""

from __future__ import annotations

import torch
from tensordict import TensorDict

from datasets_cli.errors import UsageError
from datasets_cli.replay.trajectories.bounds import begins_of, first_of
from datasets_cli.replay.transforms.steps import DONE, flags
from datasets_cli.replay.transforms.transform import Transform


class StepCounter(Transform):
    """Counts the steps of a trajectory: ``step_count`` before a step, and after it below ``next``.

    The batch is steps in a row, ``[*B, T]``: a trajectory begins with the batch and after each
    ``("next", "done")``.

    Args:
        max_steps: cut trajectories into parts of this many steps: the last step of each is marked
            as truncated, and the count begins again after it.
        truncated_key: what that flag is called.
        step_count_key: what the counts are called.
        update_done: mark those steps as done, too.

    Raises:
        UsageError: ``max_steps`` is below 1.
    """

    def __init__(
        self,
        max_steps: int | None = None,
        truncated_key: str = "truncated",
        step_count_key: str = "step_count",
        update_done: bool = True,
    ) -> None:
        if max_steps is not None and max_steps < 1:
            raise UsageError(
                f"A trajectory has 1 step or more, so max_steps cannot be {max_steps}."
            )
        self.max_steps = max_steps
        self.truncated_key = truncated_key
        self.step_count_key = step_count_key
        self.update_done = update_done

    def __call__(self, batch: TensorDict) -> TensorDict:
        ends = flags(batch, DONE, "StepCounter")
        done = batch.get(DONE)
        time = torch.arange(ends.shape[-1], device=ends.device)
        count = time - first_of(ends)
        if self.max_steps is not None:
            count = count % self.max_steps
            truncated = (count + 1 == self.max_steps).reshape(done.shape)
            recorded = batch.get(("next", self.truncated_key), None)
            batch.set(
                ("next", self.truncated_key),
                truncated if recorded is None else truncated | recorded,
            )
            if self.update_done:
                batch.set(DONE, done | truncated)
        batch.set(self.step_count_key, count.reshape(done.shape))
        batch.set(("next", self.step_count_key), (count + 1).reshape(done.shape))
        return batch


class InitTracker(Transform):
    """Marks the first step of each trajectory.

    The batch is steps in a row, ``[*B, T]``: a trajectory begins with the batch and after each
    ``("next", "done")``. So each slice of a slice sampler begins marked.

    Args:
        init_key: what the mark is called.
    """

    def __init__(self, init_key: str = "is_init") -> None:
        self.init_key = init_key

    def __call__(self, batch: TensorDict) -> TensorDict:
        begins = begins_of(flags(batch, DONE, "InitTracker"))
        return batch.set(self.init_key, begins.reshape(batch.get(DONE).shape))
