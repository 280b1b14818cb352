"""Transforms that sum rewards over trajectories."""

from __future__ import annotations

import torch
from tensordict import TensorDict

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import NestedKey, NestedKeys, key_of, keys_of
from datasets_cli.replay.torchrl_words import Word, takes
from datasets_cli.replay.trajectories.bounds import begins_of, sum_so_far, sum_to_go
from datasets_cli.replay.transforms.key_map import KeyMap, required_entry
from datasets_cli.replay.transforms.steps import DONE, flags
from datasets_cli.replay.transforms.transform import Transform

REWARD: NestedKeys = [("next", "reward")]


@takes(reward_spec=Word(False, instead="It has no specs."))
class RewardSum(Transform):
    """Sums the rewards of a trajectory up to each of its steps.

    The batch is steps in a row, ``[*B, T]``, slices one after the other among them: a sum begins
    with the batch and after each ``("next", "done")``.

    Args:
        in_keys: rewards; ``("next", "reward")`` by default.
        out_keys: where the sums go; by default ``episode_`` and the reward's name, beside it.
        reset_keys: a flag for each reward on whose steps its sum begins again, too.

    Raises:
        UsageError: there are not as many keys as rewards.
    """

    def __init__(
        self,
        in_keys: NestedKeys | None = None,
        out_keys: NestedKeys | None = None,
        reset_keys: NestedKeys | None = None,
    ) -> None:
        rewards = keys_of(REWARD if in_keys is None else in_keys)
        beside = [(*key[:-1], f"episode_{key[-1]}") for key in rewards]
        self._sums = KeyMap("RewardSum", rewards, beside if out_keys is None else out_keys)
        self._resets = None if reset_keys is None else KeyMap("RewardSum", rewards, reset_keys)

    def __call__(self, batch: TensorDict) -> TensorDict:
        begins = begins_of(flags(batch, DONE, "RewardSum"))
        for number, (source, target) in enumerate(self._sums.pairs):
            restarts = begins
            if self._resets is not None:
                restarts = begins | flags(batch, self._resets.out_keys[number], "RewardSum")
            batch.set(target, sum_so_far(required_entry(batch, source, "RewardSum"), restarts))
        return batch


class Reward2GoTransform(Transform):
    """Sums the rewards of a trajectory from each of its steps on, when rows are written.

    It leaves what is read alone; ``append_transform(Reward2GoTransform(), invert=True)`` turns that
    around. The data is steps in a row, ``[*B, T]``; a sum ends at each ``("next", "done")``.

    Args:
        gamma: the discount a step.
        in_keys: rewards; ``("next", "reward")`` by default.
        out_keys: where the sums go; ``in_keys`` by default.
        done_key: the flag below ``"next"`` that ends a trajectory.

    Raises:
        UsageError: there are not as many keys out as in.
    """

    def __init__(
        self,
        gamma: float = 1.0,
        in_keys: NestedKeys | None = None,
        out_keys: NestedKeys | None = None,
        done_key: NestedKey = "done",
    ) -> None:
        self.gamma = float(gamma)
        self._sums = KeyMap("Reward2GoTransform", REWARD if in_keys is None else in_keys, out_keys)
        self._done = ("next", *key_of(done_key))

    def __call__(self, batch: TensorDict) -> TensorDict:
        return batch

    def inv(self, data: TensorDict) -> TensorDict:
        """Return the rows to be stored, with their sums.

        Raises:
            UsageError: an entry is missing, or no trajectory ends in a row of the data, whose
                sums would all lack what comes later.
        """
        done = flags(data, self._done, "Reward2GoTransform")
        if not bool(done.any(-1).all()):
            raise UsageError(
                "Reward2GoTransform found no end of a trajectory to sum rewards up to. Write whole "
                "trajectories."
            )

        def summed(reward: torch.Tensor) -> torch.Tensor:
            is_discountable = self.gamma == 1 or reward.is_floating_point()
            return sum_to_go(reward if is_discountable else reward.float(), done, self.gamma)

        return self._sums.apply(data.copy(), summed)


Reward2Go = Reward2GoTransform
"""The name in short."""
