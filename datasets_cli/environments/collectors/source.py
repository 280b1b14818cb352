"""The source of a collector's batches: an environment and a policy, in one process."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, TypeAlias

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import set_interaction_type

from datasets_cli.core.gymnasium_extra import gymnasium
from datasets_cli.environments.collectors.options import CollectorOptions, split_frames
from datasets_cli.environments.environment import ACTION, Environment
from datasets_cli.environments.gym_env import GymEnv
from datasets_cli.environments.policies import RandomPolicy, WarmupActor, actor_of, flat_items
from datasets_cli.environments.rows import PolicyOutput
from datasets_cli.environments.tensordict_environment import (
    TensorDictEnvironment,
    end_keys,
    is_environment,
)
from datasets_cli.errors import Unsupported, UsageError, WrongState, wrong_value
from datasets_cli.replay.trajectories.seams import COLLECTOR_NUMBER, Numbering

CollectorState = dict[str, Any]
PolicyWeights: TypeAlias = Mapping[str, Any] | TensorDictBase | torch.nn.Module | None


class BatchSource:
    """Batches of steps in an environment."""

    # The constructor resets the environment, and calls the policy once to learn its entries.
    # frames: the rows of a batch. number: the number of this source among `num_sources`.

    def __init__(
        self,
        environment: Environment | TensorDictEnvironment,
        policy: Any,
        options: CollectorOptions,
        frames: int,
        number: int = 0,
        num_sources: int = 1,
    ) -> None:
        self.environment = environment
        self.numbering = Numbering()
        self._options, self._number, self._num_sources = options, number, num_sources
        self._num_steps = _steps_per_lane(frames, environment)
        self._original_policy = policy
        device = options.policy_call_device or environment.device
        self._policy = _on_device(policy, device)
        if isinstance(environment, TensorDictEnvironment):
            environment.set_policy_specs(self._policy)
        random = RandomPolicy(environment.action_spec)
        self._actor = actor_of(random if policy is None else self._policy, ACTION, device)
        environment.stepper.reset()
        self._first_id = int(environment.stepper.ids.min())
        with torch.no_grad():
            self._random_actor = WarmupActor(random, self._policy_entries())

    def _policy_entries(self) -> PolicyOutput:
        """Call the policy once, and return the tensors that it adds."""
        environment = self.environment
        rows = environment.new_rows(1)
        environment.stepper.write_root(rows, 0)
        root = flat_items(rows.root(0)).keys()
        output = self._actor.act(rows, 0)
        actions = environment.stepper.actions
        actions.check = self._options.check_actions
        actions.convert(output, environment.stepper.frames)
        tensors = {key: each for key, each in output.items() if isinstance(each, torch.Tensor)}
        return {key: value for key, value in tensors.items() if key not in root}

    def collect(self, random: bool) -> TensorDict:
        """Return the next rows, ``[*batch, T]``, with trajectory numbers from 0."""
        stepper, options = self.environment.stepper, self._options
        if options.reset_at_each_iter:
            stepper.reset()
        elif stepper.ended.any():  # by a user's step between two batches
            stepper.restart(stepper.ended)
        rows = self.environment.new_rows(self._num_steps)
        actor = self._random_actor if random else self._actor
        with torch.no_grad(), set_interaction_type(options.interaction_type):
            stepper.roll(actor, rows, max_frames=options.max_frames)
        if options.set_truncated:
            rows.truncate(-1, np.ones(len(rows.ids), bool))
        batch = rows.to_tensordict(self._num_steps)
        if options.set_truncated and not [*end_keys(batch["next"], ("truncated",))]:
            found = [*batch["next"].keys(True, True)]
            raise Unsupported(
                "set_truncated requires the flag 'truncated' below 'next', which the environment "
                f"does not write. Found: {found}.",
                argument="set_truncated",
                key=("next", "truncated"),
                found=found,
                advice="Call environment.add_truncated_keys().",
            )
        # Source w of W numbers its trajectories w, W + w, 2 W + w, ...
        ids = (rows.ids - self._first_id) * self._num_sources + self._number
        batch[COLLECTOR_NUMBER] = torch.from_numpy(ids).reshape(batch.batch_size)
        if options.max_frames is not None and "step_count" not in batch:
            count = torch.from_numpy(rows.frames).reshape(*batch.batch_size, 1)
            batch["step_count"], batch["next", "step_count"] = count, count + 1
            if not [*end_keys(batch["next"], ("truncated",))]:
                batch["truncated"] = torch.zeros_like(count, dtype=torch.bool)
                batch["next", "truncated"] = count + 1 >= options.max_frames
        return batch

    def set_seed(self, seed: int, static_seed: bool) -> int:
        """Reset the environment with a seed, and return the next unused seed."""
        return self.environment.set_seed(seed, static_seed)

    def reset(self) -> None:
        """Start new trajectories."""
        self.environment.stepper.reset()

    def update_weights(self, weights: PolicyWeights) -> None:
        """Replace the weights of the policy."""
        if weights is None and self._policy is self._original_policy:
            return
        load_weights(self._policy, self._original_policy if weights is None else weights)

    def states(self) -> list[CollectorState]:
        """Return the states of the policy and of the environment's transforms, in a list."""
        state: CollectorState = {}
        if isinstance(self._policy, torch.nn.Module):
            state["policy"] = self._policy.state_dict()
        if isinstance(self.environment, TensorDictEnvironment):
            state["environment"] = self.environment.state_dict()
        return [state]

    def load_states(self, states: list[CollectorState]) -> None:
        """Load the states of the policy and the transforms, and start new trajectories."""
        (state,), stepper = states, self.environment.stepper
        if isinstance(self.environment, TensorDictEnvironment):
            self.environment.load_state_dict(state.get("environment"))
        stepper.reset()
        if "policy" in state:
            load_weights(self._policy, state["policy"])

    def close(self) -> None:
        """Close the environment and its processes."""
        self.environment.close()

    def __repr__(self) -> str:
        return repr(self.environment)


def make_environment(
    create_env_fn: Any, kwargs: Mapping[str, Any] | None, options: CollectorOptions
) -> Environment | TensorDictEnvironment:
    """Return an environment, or the result of a function that creates one."""
    environment = create_env_fn
    if callable(create_env_fn) and not is_environment(create_env_fn):
        environment = create_env_fn(**(kwargs or {}))
    elif kwargs:
        raise UsageError(
            "create_env_kwargs requires a function as create_env_fn, not an environment.",
            argument="create_env_kwargs",
            found=sorted(kwargs),
        )
    if isinstance(environment, gymnasium.Env):
        environment = GymEnv(environment)
    if isinstance(environment, Environment):
        if torch.device(options.env_device or "cpu").type != "cpu":
            raise wrong_value(
                "env_device",
                "cpu",
                options.env_device,
                "GymEnv(device=...) moves the observations.",
                kind=Unsupported,
            )
        return environment
    if not is_environment(environment):
        raise wrong_value(
            "create_env_fn",
            "an environment, such as GymEnv('CartPole-v1'), or a function that returns one",
            type(environment),
        )
    return TensorDictEnvironment(environment, options.environment_device)


def _steps_per_lane(frames: int, environment: Environment | TensorDictEnvironment) -> int:
    return split_frames("frames_per_batch", frames, environment.lanes.num_lanes, "environments")


def _on_device(policy: Any, device: torch.device | None) -> Any:
    """Return the policy; a module on another device is copied to the device."""
    if device is None or not isinstance(policy, torch.nn.Module):
        return policy
    types = {each.device.type for each in (*policy.parameters(), *policy.buffers())}
    return policy if types <= {device.type} else deepcopy(policy).to(device)


def load_weights(policy: Any, weights: PolicyWeights) -> None:
    """Load weights into a policy module."""
    by_name = checked_weights(policy, weights)
    try:
        policy.load_state_dict(by_name)
    except RuntimeError as error:
        raise WrongState(
            f"The weights do not match the policy: {error}", argument="weights"
        ) from error


def checked_weights(policy: Any, weights: PolicyWeights) -> Mapping[str, Any]:
    """Return weights by name, or raise an error if the names differ from the policy's."""
    if not isinstance(policy, torch.nn.Module):
        raise wrong_value("policy", "a torch module to have weights", type(policy))
    by_name = _weights_by_name(weights)
    expected, found = [*policy.state_dict()], [*by_name]
    if {*expected} != {*found}:
        raise WrongState(
            f"The weights do not match the policy. Expected: {expected}. Found: {found}.",
            argument="weights",
            expected=expected,
            found=found,
        )
    return by_name


def _weights_by_name(weights: Any) -> Mapping[str, Any]:
    """Return the weights of a module, a TensorDict or a mapping by name."""
    if isinstance(weights, torch.nn.Module):
        return weights.state_dict()
    if isinstance(weights, TensorDictBase):
        return {str(key): value for key, value in weights.flatten_keys(".").items()}
    if isinstance(weights, Mapping):
        return weights
    raise wrong_value("weights", "a module, its state_dict or a TensorDict of it", type(weights))
