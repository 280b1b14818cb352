"""Environments that are functions of TensorDicts already, such as TorchRL's."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDict, TensorDictBase

from datasets_cli.environments.actions import SpecActions
from datasets_cli.environments.environment import Stepper
from datasets_cli.environments.lanes import Flags, Seeds, Step
from datasets_cli.environments.rows import PolicyOutput, Tensors
from datasets_cli.errors import UsageError

ENDS = ("done", "truncated")


class TensorDictRows:
    """The rows of all lanes, as the environment and the policy wrote them."""

    def __init__(self, batch: tuple[int, ...], num_steps: int) -> None:
        self.num_steps = num_steps
        self._batch = batch
        self._steps: list[TensorDictBase] = []
        self.ids, self.frames = np.empty((2, math.prod(batch), num_steps), np.int64)

    def root(self, step: int) -> TensorDictBase:
        """Return what a policy is given: a copy of where the lanes stand, with the same tensors."""
        return self._steps[step].copy()

    def added(self, before: Tensors, after: Tensors) -> PolicyOutput:
        """Return what a policy wrote: the next step begins with it, too."""
        return {key: value for key, value in after.items() if value is not before.get(key)}

    def write_root(self, step: int, observation: Any, ids: NDArray[np.int64]) -> None:
        self._steps.append(observation)
        self.ids[:, step] = ids

    def write_action(self, step: int, written: PolicyOutput) -> None:
        for key, value in written.items():
            self._steps[step].set(key, value)

    def write_next(self, step: int, result: Step) -> None:
        """Do nothing: the step was written below ``"next"``."""

    def truncate(self, step: int, lanes: Flags) -> None:
        mark_ends(self._steps[step].get("next"), lanes)

    def to_tensordict(self, num_steps: int) -> TensorDict:
        steps: TensorDict = torch.stack(self._steps[:num_steps], len(self._batch))
        # A name with "_" is of what modules keep from step to step.
        rows = steps.exclude(*(key for key in steps.keys(True) if _is_private(key)))
        rows = rows.clear_device_()
        rows.names = [*[None] * len(self._batch), "time"]
        return rows


def _is_private(key: Any) -> bool:
    return any(name.startswith("_") for name in ((key,) if isinstance(key, str) else key))


def end_keys(tensordict: TensorDictBase, names: tuple[str, ...] = ENDS) -> Iterator[Any]:
    """Yield the keys of flags that end trajectories, at the root and below it."""
    for key in tensordict.keys(True, True):
        if (key if isinstance(key, str) else key[-1]) in names:
            yield key


def mark_ends(tensordict: TensorDictBase, lanes: Flags) -> None:
    """Mark lanes as ended by a cut, in tensors of their own."""
    mask = torch.from_numpy(lanes).reshape(tensordict.batch_size)
    for key in [*end_keys(tensordict)]:
        flag = tensordict.get(key)
        over = mask.to(flag.device).reshape(*mask.shape, *[1] * (flag.ndim - mask.ndim))
        tensordict.set(key, flag | over)


_ASKED = ("reset", "step", "set_seed", "batch_size", "action_spec")


def is_environment(value: Any) -> bool:
    """Return whether a value has what is asked of an environment of TensorDicts."""
    return not isinstance(value, type) and all(hasattr(value, name) for name in _ASKED)


class TensorDictEnvironment:
    """An environment of TensorDicts, for the loop of steps."""

    def __init__(self, environment: Any, device: torch.device | None = None) -> None:
        moves = hasattr(environment, "to")
        if moves and device is not None and environment.device != device:
            environment = environment.to(device)
        self.given = environment
        self.batch_size = torch.Size(environment.batch_size)
        placed = getattr(environment, "device", None) or torch.device("cpu")
        self.device: torch.device | None = None if placed.type == "cpu" else placed
        self.action_spec: Any = getattr(environment, "full_action_spec", environment.action_spec)
        self.lanes = TensorDictLanes(environment)

    @cached_property
    def stepper(self) -> Stepper:
        """What takes the steps, and knows where each lane stands."""
        return Stepper(self.lanes, SpecActions(self.action_spec))

    def new_rows(self, num_steps: int) -> TensorDictRows:
        """Return room for the rows of some steps."""
        return TensorDictRows(self.batch_size, num_steps)

    def inform(self, policy: Any) -> None:
        """Give a policy, and modules in it, the action spec that they were made without."""
        if hasattr(policy, "set_action_spec_from_env"):  # TorchRL's RandomPolicy()
            policy.set_action_spec_from_env(self.given)
        if isinstance(policy, torch.nn.Module):
            spec = getattr(self.given, "action_spec_unbatched", self.given.action_spec)
            for module in policy.modules():
                # Such as TorchRL's AdditiveGaussianModule, whose spec can be set.
                place = getattr(type(module), "spec", None)
                if isinstance(place, property) and place.fset and module.spec is None:
                    module.spec = spec

    def set_seed(self, seed: int, static_seed: bool = False) -> int:
        """Seed every lane, and begin a trajectory in it; return the next seed."""
        following = self.given.set_seed(seed, static_seed=static_seed)
        self.stepper.begin()
        return int(following)

    def state_dict(self) -> Any:
        """Return what the environment says of its state, which is that of its transforms."""
        return self.given.state_dict() if hasattr(self.given, "state_dict") else None

    def load_state_dict(self, state: Any) -> None:
        """Load what ``state_dict`` gave."""
        if state:
            self.given.load_state_dict(state)

    def close(self) -> None:
        """Close the environment if it is open and can be closed."""
        if hasattr(self.given, "close") and not getattr(self.given, "is_closed", False):
            self.given.close()

    def __repr__(self) -> str:
        return repr(self.given)


class TensorDictLanes:
    """The lanes of an environment of TensorDicts, which resets the lanes that a step ended."""

    def __init__(self, environment: Any) -> None:
        self._environment = environment
        self._batch = torch.Size(environment.batch_size)
        self.num_lanes = self._batch.numel()
        self._ended: Any = None  # by the last step, after which the environment began again
        self._root: TensorDictBase | Any = None

    def reset(self, seeds: Seeds) -> TensorDictBase:
        self._root = self._environment.reset()
        return self._root

    def restart(self, ended: Flags, seeds: Seeds = None) -> TensorDictBase:
        due = ended & ~self._ended
        if due.any():  # trajectories that were cut
            mark_ends(self._root, due)
            self._root = self._begun(self._root)
        return self._root

    def step(self, actions: Any) -> Step:
        given = self._root
        stepped, self._root = self._stepped(given)
        if stepped is not given:
            given.set("next", stepped.get("next"))
        self._ended = self._lanes_over(given.get("next"))
        return Step(self._root, {}, self._ended, self._ended, self._ended)

    def _stepped(self, given: TensorDictBase) -> tuple[TensorDictBase, TensorDictBase]:
        """Take a step; return it, and what the next one begins with."""
        if hasattr(self._environment, "step_and_maybe_reset"):
            pair: tuple[TensorDictBase, TensorDictBase] = self._environment.step_and_maybe_reset(
                given
            )
            return pair
        stepped = self._environment.step(given)
        root = stepped.get("next").exclude("reward")
        return stepped, self._begun(root)

    def _begun(self, root: TensorDictBase) -> TensorDictBase:
        """Begin a trajectory where one has ended; return where the lanes stand."""
        if hasattr(self._environment, "maybe_reset"):
            begun: TensorDictBase = self._environment.maybe_reset(root)
            return begun
        ended = self._lanes_over(root)
        if ended.any():
            root.set("_reset", torch.from_numpy(ended).reshape(*self._batch, 1))
            root = self._environment.reset(root)
        return root

    def _lanes_over(self, tensordict: TensorDictBase) -> Flags:
        """Return where a trajectory has ended, ``[N]``."""
        keys = [*end_keys(tensordict, ("done",))]
        if not keys:
            raise UsageError(
                f"{self._environment} wrote no 'done' below 'next'. Expected: a flag, true where "
                f"a trajectory ends. Found: {[*tensordict.keys(True, True)]}."
            )
        ended: Flags = (
            sum(tensordict.get(key).reshape(self.num_lanes, -1).any(-1) for key in keys)
            .cpu()
            .numpy()
            .astype(bool)
        )
        return ended
