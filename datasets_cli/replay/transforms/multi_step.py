"""Multi-step returns: the rewards of n steps, and the observation n steps on.

n_steps = 3, gamma = g    next.reward    r0 + g r1 + gg r2,  r1 + g r2 + gg r3, ...
done      . . . x         next.observation of row 2, of row 3, of row 3, of row 3
                          steps_to_next_obs          3, 3, 2, 1
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from tensordict import TensorDict, is_leaf_nontensor, is_non_tensor

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import NestedKey, NestedKeys, key_of, keys_of, whole_number
from datasets_cli.replay.trajectories.bounds import last_of
from datasets_cli.replay.transforms.steps import flags
from datasets_cli.replay.transforms.transform import StepTransform, required_entry
from datasets_cli.schema.columns import Key

FLAGS: tuple[str, ...] = ("done", "truncated", "terminated")


class MultiStep(StepTransform):
    """Makes steps in a row, ``[*B, T]``, span n steps each, fewer where a trajectory ends.

    Below ``next`` the reward becomes the discounted sum, the old one stays as ``original_reward``,
    and every other entry is that of the last step spanned. ``gamma``, the discount of the value
    there, ``steps_to_next_obs``, and ``nonterminal``, False on the last step of a trajectory or of
    the batch, are added ``[*B, T]``. Where ``("collector", "mask")`` marks padding, no span reaches
    into it.

    The end flags stay those of the first step, as in TorchRL, so that trajectories can still be
    told apart. Beware: a value target that asks ``terminated`` then adds the value of a state after
    the end to every row but the last whose span reaches a terminal state. ``mark_terminated=True``
    marks these rows; ``done`` and ``truncated`` still tell trajectories apart.

    Args:
        gamma: the discount a step, above 0 and up to 1.
        n_steps: steps to span, from 1 on.
        done_keys: flags below ``next`` that stay those of the first step.
        mark_terminated: let ``terminated`` be that of the last step spanned.

    Raises:
        UsageError: an argument is out of its range.
    """

    def __init__(
        self,
        gamma: float,
        n_steps: int,
        *,
        done_keys: Sequence[NestedKey] = FLAGS,
        mark_terminated: bool = False,
    ) -> None:
        self.gamma = _discount(gamma)
        self.n_steps = whole_number("n_steps", n_steps, 1)
        self.done_keys = keys_of(list(done_keys))
        self.mark_terminated = mark_terminated

    def __call__(self, batch: TensorDict) -> TensorDict:
        """Return the batch of multi-step rows; the one given is not changed."""
        kept = _of_first_step(self.done_keys, self.mark_terminated)
        spanned = _Span(self.gamma, self.n_steps, [("reward",)], ("done",), kept)
        return spanned.of(batch, ("collector", "mask"))


class MultiStepTransform(StepTransform):
    """Makes rows span n steps each as they are written, across the seams of what is written.

    The last ``n_steps`` rows written are kept back until those after them come; nothing is stored
    while there are no others. What is read is not changed. See ``MultiStep`` for the entries.

    A row whose span reaches a terminal state is marked as terminated, because rows of a buffer are
    drawn one by one: nothing else tells a value target that there is no value to add. TorchRL's
    flags are those of the first step; ``mark_terminated=False`` keeps these.

    Args:
        n_steps: steps to span, from 1 on; it may be changed.
        gamma: the discount a step, above 0 and up to 1.
        reward_keys: rewards below ``next``; ``"reward"`` by default.
        done_key: the flag below ``next`` that ends a trajectory.
        done_keys: flags below ``next`` that stay those of the first step.
        mask_key: where padding is marked.
        mark_terminated: let ``terminated`` be that of the last step spanned.

    Raises:
        UsageError: an argument is out of its range.
    """

    def __init__(
        self,
        n_steps: int,
        gamma: float,
        *,
        reward_keys: NestedKeys | None = None,
        done_key: NestedKey | None = None,
        done_keys: Sequence[NestedKey] | None = None,
        mask_key: NestedKey | None = None,
        mark_terminated: bool = True,
    ) -> None:
        self.n_steps = whole_number("n_steps", n_steps, 1)
        self.gamma = _discount(gamma)
        self.reward_keys = keys_of("reward" if reward_keys is None else reward_keys)
        self.done_key = key_of(done_key or "done")
        self.done_keys = keys_of(list(FLAGS if done_keys is None else done_keys))
        self.mask_key = key_of(mask_key or "mask")
        self.mark_terminated = mark_terminated
        self.only_writes = True
        self._kept: TensorDict | None = None
        self._kept_before: TensorDict | None = None

    def __call__(self, batch: TensorDict) -> TensorDict:
        return batch

    def on_clear(self) -> None:
        self._kept = self._kept_before = None

    def undo_inv(self) -> None:
        self._kept = self._kept_before

    def inv(self, data: TensorDict) -> TensorDict | None:
        """Return the rows ``[*B, T']`` that can be stored now, or None.

        Raises:
            UsageError: ``n_steps`` was set to no whole number from 1 on, or the data is not of
                steps in a row.
        """
        whole_number("n_steps", self.n_steps, 1)
        if not data.ndim:
            raise UsageError(
                "Multi-step rows are made of steps in a row, [*B, T], not of one step."
            )
        if self._kept is not None:
            data = _joined(self._kept, data)
        spanned = None
        if data.shape[-1] > self.n_steps:
            kept = _of_first_step(self.done_keys, self.mark_terminated)
            span = _Span(self.gamma, self.n_steps, self.reward_keys, self.done_key, kept)
            spanned = span.of(data, self.mask_key)[..., : -self.n_steps]
        # Last, so that rows that are refused leave nothing here.
        self._kept_before, self._kept = self._kept, data[..., -self.n_steps :].clone()
        return spanned


@dataclass(frozen=True)
class _Span:
    """How one-step rows are made to span several steps; the keys are those below ``next``."""

    gamma: float
    n_steps: int
    rewards: list[Key]
    done: Key
    dones: list[Key]

    def of(self, batch: TensorDict, mask_key: Key) -> TensorDict:
        ends = flags(batch, ("next", *self.done), "MultiStep")
        mask = None
        if batch.get(mask_key, None) is not None:
            mask = flags(batch, mask_key, "MultiStep")
            ends = ends | (mask & ~mask.roll(-1, -1))  # no step reaches into the padding
        time = torch.arange(ends.shape[-1], device=ends.device)
        last = torch.minimum(last_of(ends), time + self.n_steps - 1)
        steps = last - time + 1
        nonterminal = ~ends & (time < len(time) - 1)
        batch = batch.copy()
        after = batch.get("next").copy()
        texts = _texts_of(after)
        after.update(after.exclude(*self.rewards, *self.dones, *texts).gather(-1, last))
        for name in texts:  # which gather would empty
            after.set(name, after.get(name)[_places(last)])
        for key in self.rewards:
            reward = required_entry(batch, ("next", *key), "MultiStep")
            after.set((*key[:-1], f"original_{key[-1]}"), reward)
            after.set(key, self._sum(reward, steps))
        batch.set("next", after)
        batch.set("steps_to_next_obs", steps)
        batch.set("gamma", self.gamma**steps)
        batch.set("nonterminal", nonterminal if mask is None else nonterminal & mask)
        return batch

    def _sum(self, reward: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        """Return the discounted sums of ``[*B, T, ...]`` over the steps that each row spans."""
        dim = steps.ndim - 1
        steps = steps.reshape(*steps.shape, *[1] * (reward.ndim - steps.ndim)).movedim(dim, 0)
        reward = reward.movedim(dim, 0)
        total = reward.clone() if reward.is_floating_point() else reward.float()
        for ahead in range(1, min(self.n_steps, len(reward))):
            later = self.gamma**ahead * reward[ahead:]
            total[:-ahead] += torch.where(steps[:-ahead] > ahead, later, 0)
        return total.movedim(0, dim)


def _texts_of(batch: TensorDict) -> list[NestedKey]:
    """Return the keys of what is not a tensor."""
    keys = batch.keys(include_nested=True, leaves_only=True, is_leaf=is_leaf_nontensor)
    return [key for key in keys if is_non_tensor(batch.get(key))]


def _places(last: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return what indexes a batch ``[*B, T]`` at the steps int64 ``[*B, T]``."""
    grid = torch.meshgrid(*map(torch.arange, last.shape), indexing="ij")
    return (*grid[:-1], last)


def _of_first_step(done_keys: list[Key], mark_terminated: bool) -> list[Key]:
    """Return the flags that a row keeps of the first step that it spans."""
    return [key for key in done_keys if not (mark_terminated and key[-1] == "terminated")]


def _joined(kept: TensorDict, data: TensorDict) -> TensorDict:
    """Return the rows that were kept back and those after them, ``[*B, T]``."""
    try:
        rows: TensorDict = torch.cat([kept, data], -1)
    except (RuntimeError, KeyError) as error:
        raise UsageError(
            f"These rows do not continue those that MultiStepTransform keeps back: {error}. Write "
            "rows of one form, or empty() the buffer first."
        ) from error
    return rows


def _discount(gamma: float) -> float:
    if isinstance(gamma, str) or not 0 < gamma <= 1:
        raise UsageError(f"gamma is a number above 0 and up to 1, not {gamma!r}.")
    return gamma
