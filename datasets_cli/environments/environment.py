"""The base of all environments: reset, step and rollout, in TensorDicts."""

from __future__ import annotations

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
    RESERVED,
    LaneRows,
    PolicyOutput,
    RolloutRows,
    SpaceLeaf,
    leaves_of,
)
from datasets_cli.errors import UsageError, WrongRows
from datasets_cli.replay.arguments import whole_number
from datasets_cli.schema.mapping import usable_device
from datasets_cli.specs.bounded import Unbounded
from datasets_cli.specs.categorical import Categorical
from datasets_cli.specs.composite import Composite
from datasets_cli.specs.gymnasium_spaces import spec_from_gymnasium
from datasets_cli.specs.spec import TensorSpec


class Stepper:
    """The loop of steps in all lanes, with the state of each lane's trajectory."""

    # seed_of: returns the seed of a trajectory by its number; None continues the random numbers.

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
        # The number of steps in each lane's trajectory, above 0 before the first reset, and the
        # number of that trajectory.
        self.frames = np.ones(lanes.num_lanes, np.int64)
        self.ids = np.zeros(lanes.num_lanes, np.int64)
        self.num_trajectories = 0
        """The number of trajectories that have started."""
        self.ended: Flags = np.ones(lanes.num_lanes, bool)
        """The lanes that must be reset before the next step."""

    @property
    def was_reset(self) -> bool:
        """Whether every lane was reset once."""
        return self._observation is not None

    def reset(self, seeds: Sequence[int] | None = None) -> None:
        """Start a trajectory in every lane."""
        # seeds: one for each lane, `[N]`; None continues the random numbers.
        lanes = np.ones(self._lanes.num_lanes, bool)
        self._number(lanes)
        self._observation = self._lanes.reset(seeds or self._seeds(lanes))
        self.ended = ~lanes

    def restart(self, lanes: Flags) -> None:
        """Start a trajectory in some lanes, at least one."""
        self._number(lanes)
        self._observation = self._lanes.restart(lanes, self._seeds(lanes))
        self.ended = self.ended & ~lanes

    def _number(self, lanes: Flags) -> None:
        new = lanes & (self.frames > 0)  # a trajectory without rows keeps its number
        self.frames[new] = 0
        # The next numbers, in the order of the lanes.
        self.ids[new] = np.arange(self.num_trajectories, self.num_trajectories + int(new.sum()))
        self.num_trajectories += int(new.sum())

    def _seeds(self, lanes: Flags) -> list[int | None] | None:
        if self._seed_of is None:
            return None
        numbers = zip(self.ids.tolist(), lanes.tolist(), strict=True)
        return [self._seed_of(number) if is_new else None for number, is_new in numbers]

    def write_root(self, rows: LaneRows, step: int) -> None:
        """Write the current observations."""
        rows.write_root(step, self._observation, self.ids)

    def step(self, output: PolicyOutput, rows: LaneRows, step: int) -> None:
        """Take a step with the output of a policy, and write the result."""
        result = self._lanes.step(self.actions.convert(output, self.frames))
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
        is_finished: Callable[[], bool] | None = None,
    ) -> int:
        """Take steps until the rows are full, and return the number of steps."""
        # max_frames: trajectories are truncated after as many steps.
        # is_finished: called after the end of a trajectory; the loop stops if it returns True.
        for step in range(rows.num_steps):
            rows.write_root(step, self._observation, self.ids)
            output = actor.act(rows, step)
            rows.write_action(step, output)
            self.step(output, rows, step)
            if max_frames is not None:
                rows.frames[:, step] = self.frames - 1
                if (cut := self.frames >= max_frames).any():
                    rows.truncate(step, cut)
                    self.ended = self.ended | cut
            if self.ended.any():
                if is_finished is not None and is_finished():
                    return step + 1
                self.restart(self.ended)
        return rows.num_steps


ACTION = "action"
_RESERVED = {ACTION, "reward", *RESERVED, *FLAGS}
_CHUNK = 1024  # steps of a rollout that are allocated together


class Environment(ABC):
    """One or more gymnasium environments, one lane each, that read and return TensorDicts."""

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
        """Return the lanes of gymnasium."""

    @cached_property
    def lanes(self) -> GymnasiumLanes:
        """The gymnasium environments, created on first use."""
        return self._make_lanes()

    @cached_property
    def stepper(self) -> Stepper:
        """The loop of steps of this environment."""
        actions = Actions(self.lanes.action_space, self.action_leaves, self.batch_size)
        return Stepper(self.lanes, actions)

    @cached_property
    def observation_leaves(self) -> list[SpaceLeaf]:
        """The arrays of an observation."""
        space = self.lanes.observation_space
        key = () if isinstance(space, gymnasium.spaces.Dict) else ("observation",)
        leaves = leaves_of(space, key, one_hot=self._one_hot)
        for leaf in leaves:
            if leaf.key[0] in _RESERVED:
                raise UsageError(
                    f"The observation {leaf.key[0]!r} of the environment has a reserved name.",
                    key=leaf.key,
                    advice="Rename it with a gymnasium wrapper.",
                )
        return leaves

    @cached_property
    def action_leaves(self) -> list[SpaceLeaf]:
        """The arrays of an action."""
        return leaves_of(self.lanes.action_space, (ACTION,), one_hot=self._one_hot)

    @cached_property
    def observation_spec(self) -> Composite:
        """The spec of observations."""
        return _tree_spec(self.observation_leaves, self.batch_size, self._spec_device)

    @cached_property
    def action_spec(self) -> TensorSpec:
        """The spec of actions; a Composite with ``"action"`` if an action has several parts."""
        first, batch, device = self.action_leaves[0], self.batch_size, self._spec_device
        if not first.path:
            return _leaf_spec(first, batch, device)
        return _tree_spec(self.action_leaves, batch, device)

    @cached_property
    def reward_spec(self) -> TensorSpec:
        """The spec of rewards."""
        return Unbounded((*self.batch_size, 1), self._spec_device, torch.float32)

    @cached_property
    def done_spec(self) -> Composite:
        """The specs of ``done``, ``terminated`` and ``truncated``."""
        flag = Categorical(2, (*self.batch_size, 1), self._spec_device, torch.bool)
        return Composite(dict.fromkeys(FLAGS, flag), shape=self.batch_size)

    def new_rows(self, num_steps: int) -> RolloutRows:
        """Return empty rows for a number of steps."""
        return RolloutRows(self.observation_leaves, self.batch_size, num_steps)

    def set_seed(self, seed: int, static_seed: bool = False) -> int:
        """Reset every lane with a seed, and return the next unused seed.

        Random actions come from torch's generator, which is not seeded.

        Args:
            seed: the seed of the first lane; lane i has ``seed + i``, as in gymnasium.
            static_seed: use the same seed for every lane, and return it.
        """
        self._check_open()
        seed, count = whole_number("seed", seed, 0), self.lanes.num_lanes
        self.stepper.reset([seed] * count if static_seed else range(seed, seed + count))
        return seed if static_seed else seed + count

    def reset(
        self, tensordict: TensorDictBase | None = None, *, seed: int | None = None
    ) -> TensorDictBase:
        """Start new trajectories, and return the observations ``[*batch]``.

        Args:
            tensordict: selects lanes by its entry ``"_reset"``, bool ``[*batch, 1]``; None or no
                such entry resets every lane. It is not changed.
            seed: the seed, as in ``set_seed``; None continues the random numbers.

        Raises:
            WrongRows: ``"_reset"`` has another shape.
            UsageError: ``"_reset"`` selects some lanes, but this is the first reset or has a seed.
        """
        self._check_open()
        mask = None if tensordict is None else tensordict.get("_reset", None)
        if mask is not None and not bool(mask.all()):
            self._restart(mask, seed)
        elif seed is not None:
            self.set_seed(seed)
        else:
            self.stepper.reset()
        return self._root()

    def _restart(self, mask: torch.Tensor, seed: int | None) -> None:
        if seed is not None or not self.stepper.was_reset:
            raise UsageError(
                "'_reset' cannot select lanes in the first reset or with a seed.",
                key="_reset",
                found=mask.flatten().tolist(),
                advice="Reset every lane: leave out '_reset'.",
            )
        if mask.numel() != self.lanes.num_lanes:
            raise WrongRows(
                f"'_reset' must have the shape {[*self.batch_size, 1]}, not {[*mask.shape]}.",
                key="_reset",
                expected=(*self.batch_size, 1),
                found=tuple(mask.shape),
            )
        if bool(mask.any()):
            self.stepper.restart(mask.reshape(-1).cpu().numpy())

    def step(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Take a step in every lane, and write the result below ``"next"``.

        Args:
            tensordict: contains the action ``[*batch, ...]``; it is changed and returned.

        Raises:
            WrongRows: the action is missing, or is not in the action space.
            UsageError: a lane must be reset first.
        """
        self._check_open()
        self._check_reset()
        rows = self.new_rows(1)
        self.stepper.step(flat_items(tensordict.select(ACTION, strict=False)), rows, 0)
        return tensordict.set("next", self._placed(rows.to_tensordict(1)["next"][..., 0]))

    def step_and_maybe_reset(
        self, tensordict: TensorDictBase
    ) -> tuple[TensorDictBase, TensorDictBase]:
        """Take a step, then reset the lanes whose trajectory it ended.

        Args:
            tensordict: contains the action ``[*batch, ...]``, as in ``step``.

        Returns:
            The TensorDict of ``step``, and the observations before the next step.
        """
        stepped = self.step(tensordict)
        if self.stepper.ended.any():
            self.stepper.restart(self.stepper.ended)
        return stepped, self._root()

    def rand_action(self, tensordict: TensorDictBase | None = None) -> TensorDictBase:
        """Write a random action into a TensorDict, or a new one if None, and return it."""
        target = TensorDict({}, self.batch_size) if tensordict is None else tensordict
        return RandomPolicy(self.action_spec)(target)

    def rand_step(self, tensordict: TensorDictBase | None = None) -> TensorDictBase:
        """Take a step with a random action."""
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
            max_steps: the maximal number of steps of each lane.
            policy: a function of a TensorDict, or a module; None for random actions.
            auto_reset: reset every lane first; False continues the current trajectories.
            break_when_any_done: stop when a trajectory ends in any lane; False resets that lane
                and continues.

        Raises:
            UsageError: ``max_steps`` is below 1, or ``auto_reset`` is False and a lane must be
                reset first.
        """
        self._check_open()
        max_steps = whole_number("max_steps", max_steps, 1)
        if auto_reset:
            self.stepper.reset()
        self._check_reset()
        chosen = RandomPolicy(self.action_spec) if policy is None else policy
        actor = actor_of(chosen, ACTION, self.device)
        parts: list[TensorDict] = []
        is_finished = (lambda: True) if break_when_any_done else None
        with torch.no_grad():
            for begin in range(0, max_steps, _CHUNK):
                rows = self.new_rows(min(_CHUNK, max_steps - begin))
                num_steps = self.stepper.roll(actor, rows, is_finished=is_finished)
                parts.append(rows.to_tensordict(num_steps))
                if num_steps < rows.num_steps or (break_when_any_done and self.stepper.ended.any()):
                    break
        return self._placed(torch.cat(parts, -1))

    def close(self) -> None:
        """Close the environments and their processes."""
        if self.is_closed:
            return
        self.is_closed = True
        self._close()

    def _close(self) -> None:
        if "lanes" in vars(self):
            self.lanes.close()

    def _root(self) -> TensorDictBase:
        """Return the current observations."""
        rows = self.new_rows(1)
        self.stepper.write_root(rows, 0)
        return self._placed(rows.root(0))

    def _placed(self, tensordict: TensorDictBase) -> TensorDictBase:
        return tensordict if self.device is None else tensordict.to(self.device)

    def _check_open(self) -> None:
        if self.is_closed:
            raise UsageError(f"{self} is closed.", advice="Create a new one.")

    def _check_reset(self) -> None:
        if self.stepper.ended.any():
            raise UsageError(
                "The environment must be reset before the next step.",
                found=self.stepper.ended.tolist(),
                advice="Call reset(), or reset(tensordict) with '_reset' for some lanes.",
            )


def _tree_spec(
    leaves: Sequence[SpaceLeaf], batch: tuple[int, ...], device: torch.device
) -> Composite:
    """Return the specs of all arrays, nested as in a TensorDict."""
    spec = Composite(shape=batch)
    for leaf in leaves:
        spec[leaf.key] = _leaf_spec(leaf, batch, device)
    return spec


def _leaf_spec(leaf: SpaceLeaf, batch: tuple[int, ...], device: torch.device) -> TensorSpec:
    """Return the spec of one array."""
    space = leaf.space
    if leaf.one_hot and isinstance(space, gymnasium.spaces.Discrete):
        space = gymnasium.spaces.Discrete(space.n)  # columns start at 0
    elif leaf.one_hot and isinstance(space, gymnasium.spaces.MultiDiscrete):
        space = gymnasium.spaces.MultiDiscrete(space.nvec, space.dtype.type)
    spec = spec_from_gymnasium(space, one_hot=leaf.one_hot)
    return spec.to(device).expand(*batch, *spec.shape)
