"""HERReplayBuffer: a buffer of rows with goals in hindsight, with TorchRL's arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace

import torch
from tensordict import TensorDictBase

from datasets_cli.errors import UsageError
from datasets_cli.options import part_of, takes_fields
from datasets_cli.replay.arguments import Numbers
from datasets_cli.replay.buffers.options import TensorDictBufferOptions
from datasets_cli.replay.buffers.tensordict import TensorDictReplayBuffer
from datasets_cli.replay.draws.protocol import Sampler
from datasets_cli.replay.goals.goal_rows import HindsightStrategy
from datasets_cli.replay.goals.rules import GoalRule
from datasets_cli.replay.goals.sampler import HERSampler
from datasets_cli.replay.nested_keys import NestedKey, key_of
from datasets_cli.replay.torchrl_words import BUFFER, takes
from datasets_cli.replay.trajectories.boundaries import TrajectoryKeys


@dataclass(frozen=True)
class HEROptions(TensorDictBufferOptions):
    """What a buffer of rows with goals in hindsight takes.

    Args:
        reward_fn: takes a batch with the new goals and returns its rewards, ``[B, 1]`` or ``[B]``;
            they are used for the rows with a new goal.
        her_ratio: how likely a row gets another goal.
        strategy: which step gives a goal; see ``HindsightStrategy``.
        goal_key: the goal.
        achieved_goal_key: what was achieved.
        reward_key: the reward.
        end_key: the flag that ends a trajectory, as does ``terminated`` beside it.
        transform: applied to every batch, after the goals; one that has ``inv`` also to what is
            written.
    """

    reward_fn: Callable[[TensorDictBase], Numbers]
    _: KW_ONLY
    her_ratio: float = 0.8
    strategy: HindsightStrategy | str = "future"
    goal_key: NestedKey = "desired_goal"
    achieved_goal_key: NestedKey = "achieved_goal"
    reward_key: NestedKey = ("next", "reward")
    end_key: NestedKey = ("next", "done")

    def __post_init__(self) -> None:
        if not callable(self.reward_fn):
            raise UsageError(f"reward_fn must be a function of a batch, not {self.reward_fn!r}.")


@takes(**BUFFER)
class HERReplayBuffer(TensorDictReplayBuffer):
    """A replay buffer that gives a share of the rows goals that were reached, in hindsight.

    Goals are drawn from the buffer's generator, for each row by itself, and are what a step
    achieved: ``("next", achieved_goal_key)``, which the rows must have. See ``HERSampler``.

    Raises:
        UsageError: arguments that exclude one another, or a sampler that has priorities.
    """

    @takes_fields(HEROptions)
    def __init__(self, options: HEROptions) -> None:
        self.reward_fn = options.reward_fn
        self.goal_key = options.goal_key
        self.achieved_goal_key = options.achieved_goal_key
        self.reward_key = options.reward_key
        self.end_key = options.end_key
        sampler = self._with_goals(options.sampler, options.her_ratio, options.strategy)
        buffer = part_of(options, TensorDictBufferOptions)
        super().__init__(**vars(replace(buffer, sampler=sampler)))

    @property
    def her_ratio(self) -> float:
        """How likely a row gets another goal."""
        return self._goals.ratio

    @her_ratio.setter
    def her_ratio(self, ratio: float) -> None:
        self.reader.rewind()
        self._goals.ratio = ratio

    @property
    def strategy(self) -> HindsightStrategy:
        """Which step gives a goal."""
        return self._goals.strategy

    def set_sampler(self, sampler: Sampler) -> Sampler:
        """Draw rows by another sampler, which get goals as before; return the one before."""
        previous = self._goals.sampler
        super().set_sampler(self._with_goals(sampler, self.her_ratio, self.strategy))
        return previous

    @property
    def _goals(self) -> HERSampler:
        sampler = self.reader.sampler
        assert isinstance(sampler, HERSampler), "no other is put there"
        return sampler

    def _with_goals(
        self, sampler: Sampler | None, ratio: float, strategy: HindsightStrategy | str
    ) -> HERSampler:
        """Return a sampler that gives the rows of another one goals."""
        end = key_of(self.end_key)
        return HERSampler(
            GoalRule(_OfBatch(self.reward_fn)),
            sampler=sampler,
            strategy=strategy,
            ratio=ratio,
            trajectories=TrajectoryKeys(ends=(end, (*end[:-1], "terminated"))),
            achieved_goal_key=self.achieved_goal_key,
            desired_goal_key=self.goal_key,
            reward_key=self.reward_key,
        )


class _OfBatch:
    """A function of a batch as one of goals, too."""

    def __init__(self, function: Callable[[TensorDictBase], Numbers]) -> None:
        self._function = function

    def __call__(
        self, achieved: torch.Tensor, desired: torch.Tensor, batch: TensorDictBase
    ) -> Numbers:
        """Return what the function returns for the batch."""
        return self._function(batch)

    def __repr__(self) -> str:
        return repr(self._function)
