"""Transforms of steps in a row, ``[*B, T]``: step counts, sums of rewards, and crops.

step      0 1 2 3 4 5 6        a trajectory begins at step 0 and after each done
done      . . x . . x .        the last step of the batch ends its trajectory too
begins    x . . x . . x
"""

from __future__ import annotations

import torch
from tensordict import TensorDict

from datasets_cli.errors import WrongRows, WrongSize, wrong_value
from datasets_cli.replay.arguments import (
    NestedKey,
    NestedKeys,
    key_of,
    keys_of,
    optional_key,
    whole_number,
)
from datasets_cli.replay.trajectories.bounds import begins_of, first_of, sum_so_far, sum_to_go
from datasets_cli.replay.transforms.transform import KeyMap, StepTransform, required_entry
from datasets_cli.schema.columns import Key, show_key
from datasets_cli.schema.shapes import StepFlags
from datasets_cli.torchrl.keywords import accepts_keywords

DONE: Key = ("next", "done")


def flags(batch: TensorDict, key: Key, owner: str) -> StepFlags:
    """Return the flags of a batch ``[*B, T]`` at a key."""
    stored = required_entry(batch, key, owner)
    shape = batch.batch_size
    if not shape or stored.shape not in (shape, (*shape, 1)):
        raise WrongRows(
            f"{owner}: {show_key(key)} is {list(stored.shape)} in a batch {list(shape)}; expected "
            "steps in a row, [*B, T], and flags [*B, T] or [*B, T, 1].",
            key=key,
            expected="[*B, T]",
            found=list(stored.shape),
        )
    return stored.reshape(shape).bool()


class StepCounter(StepTransform):
    """Counts the steps of each run of steps: ``step_count``, and below ``next`` one more.

    The batch is steps in a row, ``[*B, T]``: a trajectory begins with the batch and after each
    ``("next", "done")``.

    Args:
        max_steps: cut trajectories into parts of this many steps: the last step of each part is
            truncated, and the count restarts at 0 after it.
        truncated_key: key of the truncated flag, below ``next``.
        step_count_key: key of the counts.
        update_done: mark the truncated steps as done, too.

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
        self.max_steps = None if max_steps is None else whole_number("max_steps", max_steps, 1)
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
        init_key: key of the mark.
    """

    def __init__(self, init_key: str = "is_init") -> None:
        self.init_key = init_key

    def __call__(self, batch: TensorDict) -> TensorDict:
        begins = begins_of(flags(batch, DONE, "InitTracker"))
        return batch.set(self.init_key, begins.reshape(batch.get(DONE).shape))


REWARD: NestedKeys = [("next", "reward")]


@accepts_keywords
class RewardSum(StepTransform):
    """Sums the rewards of each run of steps, such as a slice, from its first step to each one.

    The batch is steps in a row, ``[*B, T]``, such as concatenated slices: a sum begins with the
    batch and after each ``("next", "done")``. It does not restart at a slice within a trajectory.

    Args:
        in_keys: keys of rewards; ``("next", "reward")`` by default.
        out_keys: keys of the sums; by default ``episode_`` and the reward's name, beside it.
        reset_keys: keys of flags, one for each reward; its sum restarts on flagged steps, too.

    Raises:
        UsageError: the numbers of keys differ.
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
    """Sums the rewards from each step to the end of its trajectory, when rows are written.

    Batches are not changed; ``append_transform(Reward2GoTransform(), invert=True)`` sums in batches
    instead. The data is steps in a row, ``[*B, T]``; a sum ends at each ``("next", "done")``.

    Args:
        gamma: the discount a step.
        in_keys: keys of rewards; ``("next", "reward")`` by default.
        out_keys: keys of the sums; ``in_keys`` by default.
        done_key: the flag below ``"next"`` that ends a trajectory.

    Raises:
        UsageError: the numbers of keys differ.
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
            UsageError: an entry is missing, or a row of the data ``[T]`` has no done: all its sums
                would lack later rewards.
        """
        done = flags(data, self._done, "Reward2GoTransform")
        if not bool(done.any(-1).all()):
            raise WrongRows(
                f"Reward2GoTransform sums rewards up to {show_key(self._done)}, which is False in "
                f"all {done.shape[-1]} steps.",
                key=self._done,
                expected="whole trajectories",
                advice="Write whole trajectories.",
            )

        def summed(reward: torch.Tensor) -> torch.Tensor:
            is_discountable = self.gamma == 1 or reward.is_floating_point()
            return sum_to_go(reward if is_discountable else reward.float(), done, self.gamma)

        return self._sums.apply(data.copy(), summed)


Reward2Go = Reward2GoTransform
"""Short name of ``Reward2GoTransform``."""


class RandomCropTensorDict(StepTransform):
    """Cuts a run of equal length out of each row of trajectories, at a random start.

        row, 5 steps    a b c d e
        crops of 3      a b c · b c d · c d e        each with probability 1/3

    Args:
        sub_seq_len: steps in a crop.
        sample_dim: the dimension of time; negative counts from the last of the batch.
        mask_key: key of a mask ``[*B, T]``, valid steps first, then padding; crops have no
            padding. Without the mask all steps of a batch are valid.
        generator: draws the starts; torch's global generator by default.

    Raises:
        UsageError: ``sub_seq_len`` is not a positive whole number.
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
            raise wrong_value(
                "sample_dim", f"a dimension of {list(batch.batch_size)}", self.sample_dim
            )
        dim = self.sample_dim % batch.ndim
        lengths = self._lengths(batch, dim)
        shortest = int(lengths.min()) if lengths.numel() else 0
        if shortest < self.sub_seq_len:
            raise WrongSize(
                f"A crop has {self.sub_seq_len} steps; the shortest row of the batch "
                f"{list(batch.batch_size)} has {shortest} along dimension {self.sample_dim}.",
                argument="sub_seq_len",
                expected=self.sub_seq_len,
                found=shortest,
                advice="Pass a smaller sub_seq_len, or longer rows.",
            )
        device = None if self.generator is None else self.generator.device
        # float64: float32 cannot express every start in a row of more than 2**24 steps.
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
            raise WrongRows(
                f"The mask {show_key(self.mask_key)} is {list(mask.shape)}; expected the shape of "
                f"the batch, {list(batch.batch_size)}.",
                key=self.mask_key,
                expected=list(batch.batch_size),
                found=list(mask.shape),
            )
        return mask.sum(dim, keepdim=True)
