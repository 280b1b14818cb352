"""Environments that read and write TensorDicts themselves, such as TorchRL's."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from datasets_cli.environments.actions import SpecActions
from datasets_cli.environments.environment import Stepper
from datasets_cli.environments.lanes import Flags, LaneNumbers, Seeds, Step
from datasets_cli.environments.rows import PolicyOutput, Tensors
from datasets_cli.errors import UnknownKey

ENDS = ("done", "truncated")


class TensorDictRows:
    """The rows of all lanes: the TensorDicts that the environment and the policy wrote."""

    def __init__(self, batch: tuple[int, ...], num_steps: int) -> None:
        self.num_steps = num_steps
        self._batch = batch
        self._steps: list[TensorDictBase] = []
        self.ids, self.frames = np.empty((2, math.prod(batch), num_steps), np.int64)

    def root(self, step: int) -> TensorDictBase:
        """Return the input of a policy: a shallow copy of the current TensorDict."""
        return self._steps[step].copy()

    def policy_output(self, before: Tensors, after: Tensors) -> PolicyOutput:
        """Return the entries that a policy added or replaced; the environment gets them too."""
        return {key: value for key, value in after.items() if value is not before.get(key)}

    def write_root(self, step: int, observation: Any, ids: LaneNumbers) -> None:
        self._steps.append(observation)
        self.ids[:, step] = ids

    def write_action(self, step: int, written: PolicyOutput) -> None:
        for key, value in written.items():
            self._steps[step].set(key, value)

    def write_next(self, step: int, result: Step) -> None:
        """Do nothing: the environment wrote the step below ``"next"``."""

    def truncate(self, step: int, lanes: Flags) -> None:
        mark_ends(self._steps[step].get("next"), lanes)

    def to_tensordict(self, num_steps: int) -> TensorDict:
        steps: TensorDict = torch.stack(self._steps[:num_steps], len(self._batch))
        # Entries with "_" are the state of transforms and modules between steps.
        rows = steps.exclude(*(key for key in steps.keys(True) if _is_private(key)))
        rows = rows.clear_device_()
        rows.names = [*[None] * len(self._batch), "time"]
        return rows


def _is_private(key: Any) -> bool:
    return any(name.startswith("_") for name in ((key,) if isinstance(key, str) else key))


def end_keys(tensordict: TensorDictBase, names: tuple[str, ...] = ENDS) -> Iterator[Any]:
    """Yield the keys of all flags with these names, at the root and nested."""
    for key in tensordict.keys(True, True):
        if (key if isinstance(key, str) else key[-1]) in names:
            yield key


def mark_ends(tensordict: TensorDictBase, lanes: Flags) -> None:
    """Truncate the trajectories of some lanes, in copies of the flags."""
    mask = torch.from_numpy(lanes).reshape(tensordict.batch_size)
    for key in [*end_keys(tensordict)]:
        flag = tensordict.get(key)
        ended = mask.to(flag.device).reshape(*mask.shape, *[1] * (flag.ndim - mask.ndim))
        tensordict.set(key, flag | ended)


_METHODS = ("reset", "step", "set_seed", "batch_size", "action_spec")


def is_environment(value: Any) -> bool:
    """Return whether a value has the methods of an environment of TensorDicts."""
    return not isinstance(value, type) and all(hasattr(value, name) for name in _METHODS)


class TensorDictEnvironment:
    """Adapts an environment of TensorDicts to the loop of steps."""

    def __init__(self, environment: Any, device: torch.device | None = None) -> None:
        if hasattr(environment, "to") and device is not None and environment.device != device:
            environment = environment.to(device)
        self.wrapped = environment
        self.batch_size = torch.Size(environment.batch_size)
        device = getattr(environment, "device", None) or torch.device("cpu")
        self.device: torch.device | None = None if device.type == "cpu" else device
        self.action_spec: Any = getattr(environment, "full_action_spec", environment.action_spec)
        self.lanes = TensorDictLanes(environment)

    @cached_property
    def stepper(self) -> Stepper:
        """The loop of steps of this environment."""
        return Stepper(self.lanes, SpecActions(self.action_spec))

    def new_rows(self, num_steps: int) -> TensorDictRows:
        """Return empty rows for a number of steps."""
        return TensorDictRows(self.batch_size, num_steps)

    def set_policy_specs(self, policy: Any) -> None:
        """Set the action spec of a policy, and of modules in it, that have none yet."""
        if hasattr(policy, "set_action_spec_from_env"):  # TorchRL's RandomPolicy()
            policy.set_action_spec_from_env(self.wrapped)
        if isinstance(policy, torch.nn.Module):
            spec = getattr(self.wrapped, "action_spec_unbatched", self.wrapped.action_spec)
            for module in policy.modules():
                # For example TorchRL's AdditiveGaussianModule, whose spec can be set.
                member = getattr(type(module), "spec", None)
                if isinstance(member, property) and member.fset and module.spec is None:
                    module.spec = spec

    def set_seed(self, seed: int, static_seed: bool = False) -> int:
        """Reset every lane with a seed, and return the next unused seed."""
        next_seed = self.wrapped.set_seed(seed, static_seed=static_seed)
        self.stepper.reset()
        return int(next_seed)

    def state_dict(self) -> Any:
        """Return the state of the environment's transforms; None without ``state_dict``."""
        return self.wrapped.state_dict() if hasattr(self.wrapped, "state_dict") else None

    def load_state_dict(self, state: Any) -> None:
        """Load a state of ``state_dict``."""
        if state:
            self.wrapped.load_state_dict(state)

    def close(self) -> None:
        """Close the environment if it is open and can be closed."""
        if hasattr(self.wrapped, "close") and not getattr(self.wrapped, "is_closed", False):
            self.wrapped.close()

    def __repr__(self) -> str:
        return repr(self.wrapped)


class TensorDictLanes:
    """The lanes of an environment of TensorDicts; it resets lanes at the end of a step itself."""

    def __init__(self, environment: Any) -> None:
        self._environment = environment
        self._batch = torch.Size(environment.batch_size)
        self.num_lanes = self._batch.numel()
        self._ended: Any = None  # lanes whose trajectory the last step ended, reset since
        self._root: TensorDictBase | Any = None

    def reset(self, seeds: Seeds) -> TensorDictBase:
        self._root = self._environment.reset()
        return self._root

    def restart(self, ended: Flags, seeds: Seeds = None) -> TensorDictBase:
        truncated = ended & ~self._ended
        if truncated.any():
            mark_ends(self._root, truncated)
            self._root = self._reset_ended(self._root)
        return self._root

    def step(self, actions: Any) -> Step:
        root = self._root
        stepped, self._root = self._step(root)
        if stepped is not root:
            root.set("next", stepped.get("next"))
        self._ended = self._ended_lanes(root.get("next"))
        return Step(self._root, self._ended, self._ended, self._ended)

    def _step(self, root: TensorDictBase) -> tuple[TensorDictBase, TensorDictBase]:
        """Take a step; return its TensorDict and the root of the next step."""
        if hasattr(self._environment, "step_and_maybe_reset"):
            pair: tuple[TensorDictBase, TensorDictBase]
            pair = self._environment.step_and_maybe_reset(root)
            return pair
        stepped = self._environment.step(root)
        return stepped, self._reset_ended(stepped.get("next").exclude("reward"))

    def _reset_ended(self, root: TensorDictBase) -> TensorDictBase:
        """Reset the lanes whose trajectory has ended, and return the new root."""
        if hasattr(self._environment, "maybe_reset"):
            new_root: TensorDictBase = self._environment.maybe_reset(root)
            return new_root
        ended = self._ended_lanes(root)
        if ended.any():
            root.set("_reset", torch.from_numpy(ended).reshape(*self._batch, 1))
            root = self._environment.reset(root)
        return root

    def _ended_lanes(self, tensordict: TensorDictBase) -> Flags:
        """Return the lanes whose trajectory has ended, ``[N]``."""
        keys = [*end_keys(tensordict, ("done",))]
        if not keys:
            found = [*tensordict.keys(True, True)]
            raise UnknownKey(
                f"The environment {self._environment} must write the flag 'done' below 'next'. "
                f"Found: {found}.",
                key=("next", "done"),
                found=found,
            )
        ended: Flags = (
            sum(tensordict.get(key).reshape(self.num_lanes, -1).any(-1) for key in keys)
            .cpu()
            .numpy()
            .astype(bool)
        )
        return ended
