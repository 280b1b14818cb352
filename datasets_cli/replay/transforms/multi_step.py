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

from datasets_cli.errors import WrongRows, wrong_value
from datasets_cli.replay.arguments import NestedKey, NestedKeys, key_of, keys_of, whole_number
from datasets_cli.replay.trajectories.bounds import last_of
from datasets_cli.replay.transforms.steps import flags
from datasets_cli.replay.transforms.transform import StepTransform, required_entry
from datasets_cli.schema.columns import Key

FLAGS: tuple[str, ...] = ("done", "truncated", "terminated")


class MultiStep(StepTransform):
    """Makes steps in a row, ``[*B, T]``, span n steps each, fewer where a trajectory ends.

    Below ``next`` the reward becomes the discounted sum, the one-step reward is kept as
    ``original_reward``, and every other entry comes from the last step spanned. Added ``[*B, T]``
    are ``gamma``, the discount of the value there, ``steps_to_next_obs``, and ``nonterminal``,
    False on the last step of a trajectory or of the batch. A span never includes the padding of
    ``("collector", "mask")``.

    The end flags come from the first step, as in TorchRL, so that they still separate trajectories.
    Beware: a value target that reads ``terminated`` then adds the value of a state after the end to
    every row but the last whose span reaches a terminal state. ``mark_terminated=True`` marks these
    rows; ``done`` and ``truncated`` still separate trajectories.

    Args:
        gamma: the discount a step, above 0 and up to 1.
        n_steps: steps to span, 1 or more.
        done_keys: flags below ``next`` that are read from the first step.
        mark_terminated: read ``terminated`` from the last step spanned.

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
        """Return the batch of multi-step rows, a new one."""
        flag_keys = _keys_of_first_step(self.done_keys, self.mark_terminated)
        span = _Span(self.gamma, self.n_steps, [("reward",)], ("done",), flag_keys)
        return span.of(batch, ("collector", "mask"))


class MultiStepTransform(StepTransform):
    """Makes written rows span n steps each, also across calls of ``extend``.

    The last ``n_steps`` written rows stay pending until their successors are written. Batches are
    not changed. See ``MultiStep`` for the entries.

    A row whose span reaches a terminal state is marked as terminated, because rows are drawn
    independently: a value target can only read the end from the row. TorchRL reads the flag from
    the first step, as ``mark_terminated=False`` does.

    Args:
        n_steps: steps to span, 1 or more; the attribute may be changed.
        gamma: the discount a step, above 0 and up to 1.
        reward_keys: keys of rewards below ``next``; ``"reward"`` by default.
        done_key: the flag below ``next`` that ends a trajectory.
        done_keys: flags below ``next`` that are read from the first step.
        mask_key: key of the mask, False for padding.
        mark_terminated: read ``terminated`` from the last step spanned.

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
        self._pending: TensorDict | None = None
        self._pending_before: TensorDict | None = None

    def __call__(self, batch: TensorDict) -> TensorDict:
        return batch

    def on_clear(self) -> None:
        self._pending = self._pending_before = None

    def undo_inv(self) -> None:
        self._pending = self._pending_before

    def inv(self, data: TensorDict) -> TensorDict | None:
        """Return the rows ``[*B, T']`` that can be stored now, or None.

        Raises:
            UsageError: ``n_steps`` was set to a value below 1, or the data is a single step.
        """
        whole_number("n_steps", self.n_steps, 1)
        if not data.ndim:
            raise WrongRows(
                "MultiStepTransform needs steps in a row, [*B, T]; found a single step, [].",
                expected="[*B, T]",
                found=[],
                advice="Write the steps of a trajectory by extend().",
            )
        if self._pending is not None:
            data = _joined(self._pending, data)
        spanned = None
        if data.shape[-1] > self.n_steps:
            flag_keys = _keys_of_first_step(self.done_keys, self.mark_terminated)
            span = _Span(self.gamma, self.n_steps, self.reward_keys, self.done_key, flag_keys)
            spanned = span.of(data, self.mask_key)[..., : -self.n_steps]
        # Last, so that rejected rows change nothing here.
        self._pending_before, self._pending = self._pending, data[..., -self.n_steps :].clone()
        return spanned


@dataclass(frozen=True)
class _Span:
    """Computes multi-step rows; all keys are below ``next``."""

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
            # The last valid step before padding ends its trajectory.
            ends = ends | (mask & ~mask.roll(-1, -1))
        time = torch.arange(ends.shape[-1], device=ends.device)
        # The last step of each span, n = 3:  done . . . x .  ->  2 3 3 3 4
        last = torch.minimum(last_of(ends), time + self.n_steps - 1)
        steps = last - time + 1
        nonterminal = ~ends & (time < len(time) - 1)
        batch = batch.copy()
        after = batch.get("next").copy()
        texts = _texts_of(after)
        after.update(after.exclude(*self.rewards, *self.dones, *texts).gather(-1, last))
        for name in texts:  # gather would empty them
            after.set(name, after.get(name)[_index_of(last)])
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
    """Return the keys of text."""
    keys = batch.keys(include_nested=True, leaves_only=True, is_leaf=is_leaf_nontensor)
    return [key for key in keys if is_non_tensor(batch.get(key))]


def _index_of(last: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return an index of a batch ``[*B, T]`` that reads the steps ``last``, int64 ``[*B, T]``."""
    grid = torch.meshgrid(*map(torch.arange, last.shape), indexing="ij")
    return (*grid[:-1], last)


def _keys_of_first_step(done_keys: list[Key], mark_terminated: bool) -> list[Key]:
    """Return the keys of flags that are read from the first step of a span."""
    return [key for key in done_keys if not (mark_terminated and key[-1] == "terminated")]


def _joined(pending: TensorDict, data: TensorDict) -> TensorDict:
    """Return the pending rows and new rows, ``[*B, T]``."""
    try:
        rows: TensorDict = torch.cat([pending, data], -1)
    except (RuntimeError, KeyError) as error:
        raise WrongRows(
            f"The rows {list(data.batch_size)} do not continue the pending rows "
            f"{list(pending.batch_size)} of MultiStepTransform: {error}.",
            expected=list(pending.batch_size),
            found=list(data.batch_size),
            advice="Write rows with the same entries, or empty() the buffer first.",
        ) from error
    return rows


def _discount(gamma: float) -> float:
    if isinstance(gamma, str) or not 0 < gamma <= 1:
        raise wrong_value("gamma", "a number above 0 and up to 1", gamma)
    return gamma
