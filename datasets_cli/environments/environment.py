"""What every environment is: reset, steps and rollouts, in TensorDicts."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from datasets_cli.core.gymnasium_extra import gymnasium
from datasets_cli.environments.actions import Actions, SpecActions
from datasets_cli.environments.lanes import Flags, GymnasiumLanes, Lanes
from datasets_cli.environments.policies import Actor, RandomPolicy, actor_of, flat_items
from datasets_cli.environments.rows import (
    FLAGS,
    LaneRows,
    PolicyOutput,
    RolloutRows,
    SpaceLeaf,
    leaves_of,
)
from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import whole_number
from datasets_cli.schema.mapping import usable_device
from datasets_cli.specs.bounded import Unbounded
from datasets_cli.specs.categorical import Categorical
from datasets_cli.specs.composite import Composite
from datasets_cli.specs.gymnasium_spaces import spec_from_gymnasium
from datasets_cli.specs.spec import TensorSpec


class Stepper:
    """Takes steps in all lanes, and knows where each of them stands."""

    # seed_of: of a trajectory by its number; the lanes' random numbers continue where None.

    def __init__(
        self,
        lanes: Lanes,
        actions: Actions | SpecActions,
        seed_of: Callable[[int], int] | None = None,
    ) -> None:
        self._lanes = lanes
        self.actions = actions
        self._seed_of = seed_of
        self._observation: Any = None
        # Of each lane's trajectory: how many steps it has, and its number. A first one is due.
        self.frames = np.ones(lanes.num_lanes, np.int64)
        self.ids = np.zeros(lanes.num_lanes, np.int64)
        self.num_ids = 0
        """How many trajectories have begun."""
        self.ended: Flags = np.ones(lanes.num_lanes, bool)
        """Where a trajectory is to begin before the next step, ``[N]``."""

    @property
    def has_begun(self) -> bool:
        """Whether every lane was reset."""
        return self._observation is not None

    def begin(self, seeds: Sequence[int] | None = None) -> None:
        """Begin a trajectory in every lane."""
        # seeds: of the lanes, `[N]`; their random numbers continue where None.
        lanes = np.ones(self._lanes.num_lanes, bool)
        self._number(lanes)
        self._observation = self._lanes.reset(seeds or self._seeds(lanes))
        self.ended = ~lanes

    def restart(self, lanes: Flags) -> None:
        """Begin a trajectory in some lanes, at least one, ``[N]``."""
        self._number(lanes)
        self._observation = self._lanes.restart(lanes, self._seeds(lanes))
        self.ended = self.ended & ~lanes

    def _number(self, lanes: Flags) -> None:
        new = lanes & (self.frames > 0)  # a trajectory without rows keeps its number
        self.frames[new] = 0
        # The next numbers, one for each lane that begins, in the order of the lanes.
        self.ids[new] = np.arange(self.num_ids, self.num_ids + int(new.sum()))
        self.num_ids += int(new.sum())

    def _seeds(self, lanes: Flags) -> list[int | None] | None:
        if self._seed_of is None:
            return None
        numbers = zip(self.ids.tolist(), lanes.tolist(), strict=True)
        return [self._seed_of(number) if is_begun else None for number, is_begun in numbers]

    def write_root(self, rows: LaneRows, step: int) -> None:
        """Write where the lanes stand."""
        rows.write_root(step, self._observation, self.ids)

    def step(self, written: PolicyOutput, rows: LaneRows, step: int) -> None:
        """Take a step, and write what it led to."""
        result = self._lanes.step(self.actions.native(written, self.frames))
        self._observation = result.observation
        self.frames += 1
        self.ended = result.terminated | result.truncated
        rows.write_next(step, result)

    def roll(
        self,
        actor: Actor,
        rows: LaneRows,
        *,
        max_frames: int | None = None,
        is_over: Callable[[], bool] | None = None,
    ) -> int:
        """Take steps until the rows are full; return how many were taken."""
        # is_over: whether to stop; asked where trajectories have ended.
        for step in range(rows.num_steps):
            rows.write_root(step, self._observation, self.ids)
            written = actor.act(rows, step)
            rows.write_action(step, written)
            self.step(written, rows, step)
            if max_frames is not None:
                rows.frames[:, step] = self.frames - 1
                if (cut := self.frames >= max_frames).any():
                    rows.truncate(step, cut)
                    self.ended = self.ended | cut
            if self.ended.any():
                if is_over is not None and is_over():
                    return step + 1
                self.restart(self.ended)
        return rows.num_steps


ACTION = "action"
_TAKEN = {ACTION, "reward", "next", "collector", *FLAGS}
_CHUNK = 1024  # steps of a rollout for which room is made at once


class Environment(ABC):
    """Environments of gymnasium, one lane each, as functions of TensorDicts."""

    def __init__(
        self,
        batch_size: tuple[int, ...],
        device: str | torch.device | None,
        categorical_action_encoding: bool,
    ) -> None:
        self.batch_size = torch.Size(batch_size)
        self.device = None if device is None else usable_device(device)
        self.is_closed = False
        self._spec_device = self.device or torch.device("cpu")
        self._one_hot = not categorical_action_encoding

    @abstractmethod
    def _make_lanes(self) -> GymnasiumLanes:
        """Make the environments of gymnasium."""

    @cached_property
    def lanes(self) -> GymnasiumLanes:
        """The environments of gymnasium; made when they are first needed."""
        return self._make_lanes()

    @cached_property
    def stepper(self) -> Stepper:
        """What takes the steps, and knows where each lane stands."""
        actions = Actions(self.lanes.action_space, self.action_leaves, self.batch_size)
        return Stepper(self.lanes, actions)

    @cached_property
    def observation_leaves(self) -> list[SpaceLeaf]:
        """The arrays of an observation."""
        space = self.lanes.observation_space
        key = () if isinstance(space, gymnasium.spaces.Dict) else ("observation",)
        leaves = leaves_of(space, key, one_hot=self._one_hot)
        for leaf in leaves:
            if leaf.key[0] in _TAKEN:
                raise UsageError(
                    f"The environment has an observation {leaf.key[0]!r}, a name that rows have "
                    "for something else. Rename it in a wrapper of gymnasium."
                )
        return leaves

    @cached_property
    def action_leaves(self) -> list[SpaceLeaf]:
        """The arrays of an action."""
        return leaves_of(self.lanes.action_space, (ACTION,), one_hot=self._one_hot)

    @cached_property
    def observation_spec(self) -> Composite:
        """What the environment returns, but rewards and flags."""
        return _tree_spec(self.observation_leaves, self.batch_size, self._spec_device)

    @cached_property
    def action_spec(self) -> TensorSpec:
        """What it takes; a Composite with ``"action"`` in it where an action has several parts."""
        first, batch, device = self.action_leaves[0], self.batch_size, self._spec_device
        if not first.path:
            return _leaf_spec(first, batch, device)
        return _tree_spec(self.action_leaves, batch, device)

    @cached_property
    def reward_spec(self) -> TensorSpec:
        """A reward."""
        return Unbounded((*self.batch_size, 1), self._spec_device, torch.float32)

    @cached_property
    def done_spec(self) -> Composite:
        """The flags that end a trajectory."""
        flag = Categorical(2, (*self.batch_size, 1), self._spec_device, torch.bool)
        return Composite(dict.fromkeys(FLAGS, flag), shape=self.batch_size)

    def new_rows(self, num_steps: int) -> RolloutRows:
        """Return room for the rows of some steps."""
        return RolloutRows(self.observation_leaves, self.batch_size, num_steps)

    def set_seed(self, seed: int, static_seed: bool = False) -> int:
        """Reset every lane with a seed; return the first seed that was not used.

        Random numbers of torch, by which random actions are drawn, are not seeded.

        Args:
            seed: of the first lane; the others have the numbers after it, as in gymnasium.
            static_seed: give every lane the same seed, and return it.
        """
        self._check_open()
        seed, count = whole_number("seed", seed, 0), self.lanes.num_lanes
        self.stepper.begin([seed] * count if static_seed else range(seed, seed + count))
        return seed if static_seed else seed + count

    def reset(
        self, tensordict: TensorDictBase | None = None, *, seed: int | None = None
    ) -> TensorDictBase:
        """Begin trajectories; return the observations ``[*batch]``.

        Args:
            tensordict: resets only some lanes where it has ``"_reset"``, bool ``[*batch, 1]``; it
                is not changed.
            seed: as in ``set_seed``; the environments' random numbers continue where None.

        Raises:
            UsageError: ``"_reset"`` is of another shape, or not of every lane where there is a
                seed, or at the first reset.
        """
        self._check_open()
        mask = None if tensordict is None else tensordict.get("_reset", None)
        if mask is not None and not bool(mask.all()):
            self._restart(mask, seed)
        elif seed is not None:
            self.set_seed(seed)
        else:
            self.stepper.begin()
        return self._root()

    def _restart(self, mask: torch.Tensor, seed: int | None) -> None:
        if seed is not None or not self.stepper.has_begun:
            raise UsageError(
                "The first reset, and one with a seed, is of every lane, not of those of '_reset'."
            )
        if mask.numel() != self.lanes.num_lanes:
            raise UsageError(
                f"'_reset' must have the shape {[*self.batch_size, 1]}, not {[*mask.shape]}."
            )
        if bool(mask.any()):
            self.stepper.restart(mask.reshape(-1).cpu().numpy())

    def step(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Take a step in every lane, and write what it led to below ``"next"``.

        Args:
            tensordict: with the action ``[*batch, ...]``; it is changed and returned.

        Raises:
            UsageError: the action is missing or of another shape, or a lane is not reset.
        """
        self._check_open()
        self._check_reset()
        rows = self.new_rows(1)
        self.stepper.step(flat_items(tensordict.select(ACTION, strict=False)), rows, 0)
        return tensordict.set("next", self._placed(rows.to_tensordict(1)["next"][..., 0]))

    def step_and_maybe_reset(
        self, tensordict: TensorDictBase
    ) -> tuple[TensorDictBase, TensorDictBase]:
        """Take a step, and begin trajectories in the lanes where it ended one.

        Args:
            tensordict: as in ``step``.

        Returns:
            What ``step`` returns, and what the next step begins with.
        """
        stepped = self.step(tensordict)
        if self.stepper.ended.any():
            self.stepper.restart(self.stepper.ended)
        return stepped, self._root()

    def rand_action(self, tensordict: TensorDictBase | None = None) -> TensorDictBase:
        """Write a random action into a TensorDict, a new one where None, and return it."""
        written = TensorDict({}, self.batch_size) if tensordict is None else tensordict
        return RandomPolicy(self.action_spec)(written)

    def rand_step(self, tensordict: TensorDictBase | None = None) -> TensorDictBase:
        """Take a step by a random action."""
        return self.step(self.rand_action(tensordict))

    def rollout(
        self,
        max_steps: int,
        policy: Any = None,
        *,
        auto_reset: bool = True,
        break_when_any_done: bool = True,
    ) -> TensorDictBase:
        """Return the rows of up to ``max_steps`` steps, ``[*batch, T]``.

        Args:
            max_steps: of each lane.
            policy: a function of a TensorDict, or a module; random actions where None.
            auto_reset: reset every lane first; the rollout else begins where the lanes stand.
            break_when_any_done: stop where a trajectory ends in any lane; else another begins.

        Raises:
            UsageError: ``max_steps`` is below 1, or without ``auto_reset`` a lane is not reset.
        """
        self._check_open()
        if max_steps < 1:
            raise UsageError(f"max_steps must be at least 1, not {max_steps}.")
        if auto_reset:
            self.stepper.begin()
        self._check_reset()
        chosen = RandomPolicy(self.action_spec) if policy is None else policy
        actor = actor_of(chosen, ACTION, self.device)
        parts: list[TensorDict] = []
        is_over = (lambda: True) if break_when_any_done else None
        with torch.no_grad():
            for begin in range(0, max_steps, _CHUNK):
                room = min(_CHUNK, max_steps - begin)
                rows = self.new_rows(room)
                taken = self.stepper.roll(actor, rows, is_over=is_over)
                parts.append(rows.to_tensordict(taken))
                if taken < room or (break_when_any_done and self.stepper.ended.any()):
                    break
        return self._placed(torch.cat(parts, -1))

    def close(self) -> None:
        """Close the environments, and end the processes that they run in."""
        if self.is_closed:
            return
        self.is_closed = True
        self._close()
        if "stepper" in vars(self) and self.stepper.actions.outside.count:
            warnings.warn(f"{self}: {self.stepper.actions.outside}", stacklevel=2)

    def _close(self) -> None:
        if "lanes" in vars(self):
            self.lanes.close()

    def _root(self) -> TensorDictBase:
        """Return where the lanes stand."""
        rows = self.new_rows(1)
        self.stepper.write_root(rows, 0)
        return self._placed(rows.root(0))

    def _placed(self, tensordict: TensorDictBase) -> TensorDictBase:
        return tensordict if self.device is None else tensordict.to(self.device)

    def _check_open(self) -> None:
        if self.is_closed:
            raise UsageError(f"{self} is closed. Make another one.")

    def _check_reset(self) -> None:
        if self.stepper.ended.any():
            raise UsageError(
                "A trajectory is to begin before the next step. Call reset(), or for some lanes "
                "reset(tensordict) with '_reset'."
            )


def _tree_spec(
    leaves: Sequence[SpaceLeaf], batch: tuple[int, ...], device: torch.device
) -> Composite:
    """Return the spec of what is at the root of a TensorDict."""
    spec = Composite(shape=batch)
    for leaf in leaves:
        spec[leaf.key] = _leaf_spec(leaf, batch, device)
    return spec


def _leaf_spec(leaf: SpaceLeaf, batch: tuple[int, ...], device: torch.device) -> TensorSpec:
    """Return the spec of one array."""
    space = leaf.space
    if leaf.one_hot and isinstance(space, gymnasium.spaces.Discrete):
        space = gymnasium.spaces.Discrete(space.n)  # columns are counted from 0
    elif leaf.one_hot and isinstance(space, gymnasium.spaces.MultiDiscrete):
        space = gymnasium.spaces.MultiDiscrete(space.nvec, space.dtype.type)
    spec = spec_from_gymnasium(space, one_hot=leaf.one_hot)
    return spec.to(device).expand(*batch, *spec.shape)
