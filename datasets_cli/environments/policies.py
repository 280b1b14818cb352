"""Policies: functions of a TensorDict that write an action into it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from tensordict import TensorDictBase, is_leaf_nontensor
from tensordict.nn import TensorDictModuleBase

from datasets_cli.environments.rows import FLAGS, LaneRows, PolicyOutput
from datasets_cli.errors import UsageError, wrong_value
from datasets_cli.schema.columns import Key

Policy = Callable[[TensorDictBase], TensorDictBase]
_TENSORDICT_NAMES = ("tensordict", "td")


class RandomPolicy:
    """A policy that samples actions from a spec, with torch's global random numbers.

    Args:
        action_spec: the spec of the action; the entries of a Composite are written at the root.
        action_key: the key of the action, unless the spec is a Composite.
    """

    def __init__(self, action_spec: Any, action_key: str = "action") -> None:
        self.action_spec = action_spec
        self.action_key = action_key

    def __call__(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write a random action into a TensorDict, and return the TensorDict."""
        drawn = self.action_spec.rand()
        if isinstance(drawn, TensorDictBase):
            return tensordict.update(drawn)
        return tensordict.set(self.action_key, drawn)

    def __repr__(self) -> str:
        return f"RandomPolicy(action_spec={self.action_spec}, action_key={self.action_key!r})"


class Actor(Protocol):
    """A source of actions for a rollout."""

    def act(self, rows: LaneRows, step: int) -> PolicyOutput:
        """Return the action of a step, and the policy's other entries, each ``[*batch, ...]``."""


class RandomActor:
    """Random actions, sampled without a TensorDict."""

    def __init__(self, policy: RandomPolicy) -> None:
        self._policy = policy
        self._key: Key = (policy.action_key,)

    def act(self, rows: LaneRows, step: int) -> dict[Key, torch.Tensor]:
        drawn = self._policy.action_spec.rand()
        return {self._key: drawn} if isinstance(drawn, torch.Tensor) else flat_items(drawn)


class WarmupActor:
    """Random actions in place of a policy; its other entries are zero."""

    def __init__(self, policy: RandomPolicy, written: Mapping[Key, Any]) -> None:
        self._random = RandomActor(policy)
        self._zeros = {key: torch.zeros_like(value) for key, value in written.items()}

    def act(self, rows: LaneRows, step: int) -> Mapping[Key, torch.Tensor]:
        drawn = self._random.act(rows, step)
        action = {key: value.to(self._zeros.get(key, value).dtype) for key, value in drawn.items()}
        return self._zeros | action


class PolicyActor:
    """The actions of a policy."""

    def __init__(
        self, policy: Callable[..., Any], action_key: str, device: torch.device | None
    ) -> None:
        self._policy = policy
        self._action_key = action_key
        self._device = device

    def act(self, rows: LaneRows, step: int) -> PolicyOutput:
        root = rows.root(step)
        if self._device is not None:
            root = root.to(self._device)
        before = flat_items(root)
        returned = self._policy(root)
        if isinstance(returned, torch.Tensor):
            return {(self._action_key,): returned.detach()}
        if not isinstance(returned, TensorDictBase):
            raise UsageError(
                f"The policy returned {type(returned).__name__}; expected the TensorDict that it "
                f"received, with {self._action_key!r} set, or the action as a tensor.",
                argument="policy",
                expected="a TensorDict or a tensor",
                found=type(returned).__name__,
            )
        return rows.policy_output(before, flat_items(returned, is_leaf_nontensor))


def flat_items(
    tensordict: TensorDictBase, is_leaf: Callable[[type], bool] | None = None
) -> dict[Key, torch.Tensor]:
    """Return every tensor of a TensorDict by its full key; with ``is_leaf``, every such leaf."""
    leaves = tensordict.items(True, True, is_leaf=is_leaf)
    return {key if isinstance(key, tuple) else (key,): value for key, value in leaves}


def actor_of(policy: Any, action_key: str, device: torch.device | None = None) -> Actor:
    """Return the actor of a policy: a function, a module or a ``RandomPolicy``."""
    if type(policy) is RandomPolicy and policy.action_key == action_key:
        return RandomActor(policy)
    if not callable(policy):
        raise wrong_value(
            "policy", "a function of a TensorDict, a module, or None for random actions", policy
        )
    if isinstance(policy, torch.nn.Module) and not _takes_tensordict(policy):
        return PolicyActor(_module_policy(policy), action_key, device)
    return PolicyActor(policy, action_key, device)


def _takes_tensordict(module: torch.nn.Module) -> bool:
    # A compiled module has in_keys, but another class.
    if isinstance(module, TensorDictModuleBase) or hasattr(module, "in_keys"):
        return True
    first = next(iter(inspect.signature(module.forward).parameters.values()), None)
    if first is None:
        return False
    return first.name in _TENSORDICT_NAMES or "TensorDict" in str(first.annotation)


def _module_policy(module: torch.nn.Module) -> Callable[[TensorDictBase], torch.Tensor]:
    """Return a policy that passes entries to a module of tensors, by the names of its arguments.

    If the names differ, the module gets the observation, which must then be the only one.
    """
    parameters = inspect.signature(module.forward).parameters.values()
    arguments = [each.name for each in parameters if each.default is each.empty]

    def policy(tensordict: TensorDictBase) -> torch.Tensor:
        names = [key for key in tensordict.keys(True, True) if key not in FLAGS]
        if arguments and {*arguments} <= {*names}:
            names = arguments
        elif len(names) != 1:
            raise UsageError(
                f"The policy {type(module).__name__} takes {arguments}, but the environment has "
                f"{names}.",
                argument="policy",
                expected=arguments,
                found=names,
                advice="Wrap the module: tensordict.nn.TensorDictModule(module, in_keys=[...], "
                "out_keys=['action']).",
            )
        action: torch.Tensor = module(*(tensordict.get(name) for name in names))
        return action

    return policy
