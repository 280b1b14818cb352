"""Transforms of steps in a row, time last: where in its trajectory a step is, sums, and crops.

row       0 1 2 3 4 5 6        a trajectory begins where the batch does and after every end
done      . . x . . x .        the last row is an end too: nothing is known beyond it
"""

from __future__ import annotations

import torch
from tensordict import TensorDict

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import (
    NestedKey,
    NestedKeys,
    key_of,
    keys_of,
    optional_key,
    whole_number,
)
from datasets_cli.replay.torchrl_words import Word, takes
from datasets_cli.replay.trajectories.bounds import begins_of, first_of, sum_so_far, sum_to_go
from datasets_cli.replay.transforms.transform import KeyMap, StepTransform, required_entry
from datasets_cli.schema.columns import Key, show_key

DONE: Key = ("next", "done")


def flags(batch: TensorDict, key: Key, owner: str) -> torch.Tensor:
    """Return the flags bool ``[*B, T]`` that the batch ``[*B, T]`` has at a key."""
    stored = required_entry(batch, key, owner)
    shape = batch.batch_size
    if not shape or stored.shape not in (shape, (*shape, 1)):
        raise UsageError(
            f"{owner} needs steps in a row, [*B, T], and {show_key(key)} of that shape or followed "
            f"by 1; found a batch {list(shape)} and flags {list(stored.shape)}."
        )
    return stored.reshape(shape).bool()


class StepCounter(StepTransform):
    """Counts the steps of each run of steps: ``step_count``, and below ``next`` one more.

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


class InitTracker(StepTransform):
    """Marks the first step of each run of steps, such as a trajectory or a slice of one.

    The batch is steps in a row, ``[*B, T]``: a trajectory begins with the batch and after each
    ``("next", "done")``.

    Args:
        init_key: what the mark is called.
    """

    def __init__(self, init_key: str = "is_init") -> None:
        self.init_key = init_key

    def __call__(self, batch: TensorDict) -> TensorDict:
        begins = begins_of(flags(batch, DONE, "InitTracker"))
        return batch.set(self.init_key, begins.reshape(batch.get(DONE).shape))


REWARD: NestedKeys = [("next", "reward")]


@takes(reward_spec=Word(False, instead="It has no specs."))
class RewardSum(StepTransform):
    """Sums the rewards of each run of steps, such as a slice, from its first step to each one.

    The batch is steps in a row, ``[*B, T]``, slices one after the other among them: a sum begins
    with the batch and after each ``("next", "done")``, so not where a slice's trajectory does.

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


class Reward2GoTransform(StepTransform):
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
        self.only_writes = True
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


class RandomCropTensorDict(StepTransform):
    """Cuts runs of equal length out of rows that are trajectories, each start drawn for itself.

        row, 5 steps    a b c d e
        crops of 3      a b c · b c d · c d e        each with probability 1/3

    Args:
        sub_seq_len: steps in a crop.
        sample_dim: the dimension of time; negative counts from the last of the batch.
        mask_key: where a mask ``[*B, T]`` of valid steps is, first those and then padding;
            crops then have no padding. A batch without it is taken as valid throughout.
        generator: draws the starts; torch's global generator by default.

    Raises:
        UsageError: ``sub_seq_len`` is not a whole number from 1 on.
    """

    def __init__(
        self,
        sub_seq_len: int,
        sample_dim: int = -1,
        mask_key: NestedKey | None = None,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        self.sub_seq_len = whole_number("sub_seq_len", sub_seq_len, 1)
        self.sample_dim = sample_dim
        self.mask_key = optional_key(mask_key)
        self.generator = generator

    def __call__(self, batch: TensorDict) -> TensorDict:
        """Return the crops: the batch's shape, but ``sub_seq_len`` along the dimension of time."""
        if not -batch.ndim <= self.sample_dim < batch.ndim:
            raise UsageError(
                f"A batch {list(batch.batch_size)} has no dimension {self.sample_dim}."
            )
        dim = self.sample_dim % batch.ndim
        lengths = self._lengths(batch, dim)
        if not lengths.numel() or int(lengths.min()) < self.sub_seq_len:
            raise UsageError(
                f"Crops of {self.sub_seq_len} steps need rows of that many or more along dimension "
                f"{self.sample_dim}; found a batch {list(batch.batch_size)}"
                + (f" with a row of {int(lengths.min())}." if lengths.numel() else ".")
            )
        device = None if self.generator is None else self.generator.device
        # float64: a float32 cannot name every start in a row above 2**24 steps.
        chance = torch.rand(
            lengths.shape, dtype=torch.float64, generator=self.generator, device=device
        ).to(lengths.device)
        start = (chance * (lengths - self.sub_seq_len + 1)).long()
        steps = torch.arange(self.sub_seq_len, device=lengths.device)
        steps = steps.view([-1 if axis == dim else 1 for axis in range(batch.ndim)])
        return batch.gather(dim=dim, index=start + steps)

    def _lengths(self, batch: TensorDict, dim: int) -> torch.Tensor:
        """Return the valid steps of each row, int64, with size 1 along the dimension of time."""
        if self.mask_key is None or batch.get(self.mask_key, None) is None:
            shape = [1 if axis == dim else size for axis, size in enumerate(batch.batch_size)]
            return torch.full(shape, batch.batch_size[dim], device=batch.device)
        mask = required_entry(batch, self.mask_key, "RandomCropTensorDict")
        if mask.shape != batch.batch_size:
            raise UsageError(
                f"The mask must have the batch's shape {list(batch.batch_size)}, not "
                f"{list(mask.shape)}."
            )
        return mask.sum(dim, keepdim=True)
