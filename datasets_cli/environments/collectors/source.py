"""Where a collector's batches come from: an environment, a policy, and the loop of both."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, TypeAlias

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import set_interaction_type

from datasets_cli.core.gymnasium_extra import gymnasium
from datasets_cli.environments.actions import Outside
from datasets_cli.environments.collectors.options import CollectorOptions, share_of
from datasets_cli.environments.environment import ACTION, Environment
from datasets_cli.environments.gym_env import GymEnv
from datasets_cli.environments.policies import RandomPolicy, StandInActor, actor_of, flat_items
from datasets_cli.environments.rows import PolicyOutput
from datasets_cli.environments.tensordict_environment import (
    TensorDictEnvironment,
    end_keys,
    is_environment,
)
from datasets_cli.errors import UsageError
from datasets_cli.replay.trajectories.seams import COLLECTOR_NUMBER, Numbering

CollectorState = dict[str, Any]
PolicyWeights: TypeAlias = Mapping[str, Any] | TensorDictBase | torch.nn.Module | None


class BatchSource:
    """Takes steps in an environment, batch after batch."""

    # The environment is reset, and the policy called once, to know what it writes.
    # frames: of a batch of this source, which is one of `num_sources`, by its number.
    # begun: trajectories that a source in place of which this one is has begun.

    def __init__(
        self,
        environment: Environment | TensorDictEnvironment,
        policy: Any,
        options: CollectorOptions,
        frames: int,
        number: int = 0,
        num_sources: int = 1,
        begun: int = 0,
    ) -> None:
        self.environment = environment
        self.numbering = Numbering()
        self._options, self._number, self._num_sources = options, number, num_sources
        self._num_steps = _steps_of(frames, environment)
        self._given_policy = policy
        device = options.policy_on or environment.device
        self._policy = _on_device(policy, device)
        if isinstance(environment, TensorDictEnvironment):
            environment.inform(self._policy)
        random = RandomPolicy(environment.action_spec)
        self._actor = actor_of(random if policy is None else self._policy, ACTION, device)
        environment.stepper.begin()
        self._first_id = int(environment.stepper.ids.min()) - begun
        with torch.no_grad():
            self._random_actor = StandInActor(random, self._written())

    def _written(self) -> PolicyOutput:
        """Call the policy once; return what it writes."""
        environment = self.environment
        rows = environment.new_rows(1)
        environment.stepper.write_root(rows, 0)
        given = flat_items(rows.root(0)).keys()
        written = self._actor.act(rows, 0)
        actions = environment.stepper.actions
        actions.check = self._options.check_actions
        actions.native(written, environment.stepper.frames)
        actions.outside = Outside()  # no step was taken by it
        tensors = {key: each for key, each in written.items() if isinstance(each, torch.Tensor)}
        return {key: value for key, value in tensors.items() if key not in given}

    def collect(self, random: bool) -> TensorDict:
        """Return the next rows, ``[*batch, T]``, with trajectories counted from 0."""
        stepper, options = self.environment.stepper, self._options
        if options.reset_at_each_iter:
            stepper.begin()
        elif stepper.ended.any():  # by steps that the user took between two batches
            stepper.restart(stepper.ended)
        rows = self.environment.new_rows(self._num_steps)
        actor = self._random_actor if random else self._actor
        with torch.no_grad(), set_interaction_type(options.interaction):
            stepper.roll(actor, rows, max_frames=options.max_frames)
        if options.set_truncated:
            rows.truncate(-1, np.ones(len(rows.ids), bool))
        batch = rows.to_tensordict(self._num_steps)
        if options.set_truncated and not [*end_keys(batch["next"], ("truncated",))]:
            raise UsageError(
                "set_truncated marks rows as truncated, a flag that the environment does not have. "
                f"Found below 'next': {[*batch['next'].keys(True, True)]}. "
                "environment.add_truncated_keys() adds it."
            )
        # Source w of W has the numbers w, W + w, 2 W + w, ...
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
        """Seed the environment, in which new trajectories begin; return the next seed."""
        return self.environment.set_seed(seed, static_seed)

    def reset(self) -> None:
        """Begin new trajectories."""
        self.environment.stepper.begin()

    def update_weights(self, weights: PolicyWeights) -> None:
        """Give the policy other weights."""
        if weights is None and self._policy is self._given_policy:
            return
        load_weights(self._policy, self._given_policy if weights is None else weights)

    def states(self) -> list[CollectorState]:
        """Return the states of the policy and of transforms."""
        state: CollectorState = {}
        if isinstance(self._policy, torch.nn.Module):
            state["policy"] = self._policy.state_dict()
        if isinstance(self.environment, TensorDictEnvironment):
            state["environment"] = self.environment.state_dict()
        return [state]

    def load_states(self, states: list[CollectorState]) -> None:
        """Begin new trajectories, with the policy and the transforms of the state."""
        (state,), stepper = states, self.environment.stepper
        if isinstance(self.environment, TensorDictEnvironment):
            self.environment.load_state_dict(state.get("environment"))
        stepper.begin()
        if "policy" in state:
            load_weights(self._policy, state["policy"])

    def close(self) -> None:
        """Close the environment, and end the processes that it is in."""
        self.environment.close()

    def close_in_silence(self) -> Outside:
        """Close the environment, and return the actions that it else warns of."""
        actions = self.environment.stepper.actions
        outside, actions.outside = actions.outside, Outside()
        self.environment.close()
        return outside

    def __repr__(self) -> str:
        return repr(self.environment)


def environment_of(
    create_env_fn: Any, arguments: Mapping[str, Any] | None, options: CollectorOptions
) -> Environment | TensorDictEnvironment:
    """Return an environment that is given, or made by a function."""
    made = create_env_fn
    if callable(create_env_fn) and not is_environment(create_env_fn):
        made = create_env_fn(**(arguments or {}))
    elif arguments:
        raise UsageError(
            "create_env_kwargs are of a function that makes the environment. It is made already."
        )
    if isinstance(made, gymnasium.Env):
        made = GymEnv(made)
    if isinstance(made, Environment):
        if torch.device(options.env_device or "cpu").type != "cpu":
            raise UsageError(
                f"env_device is {options.env_device!r}, and gymnasium's environments are on the "
                "processor. GymEnv(device=...) moves what they return."
            )
        return made
    if not is_environment(made):
        raise UsageError(
            "A collector takes an environment, such as GymEnv('CartPole-v1'), or a function that "
            f"returns one, not {made!r}."
        )
    return TensorDictEnvironment(made, options.environment_on)


def _steps_of(frames: int, environment: Environment | TensorDictEnvironment) -> int:
    return share_of("frames_per_batch", frames, environment.lanes.num_lanes, "environments")


def _on_device(policy: Any, device: torch.device | None) -> Any:
    """Return a module on a device: a copy of it where it is on another."""
    if device is None or not isinstance(policy, torch.nn.Module):
        return policy
    places = {each.device.type for each in (*policy.parameters(), *policy.buffers())}
    return policy if places <= {device.type} else deepcopy(policy).to(device)


def load_weights(policy: Any, weights: PolicyWeights) -> None:
    """Give a policy weights."""
    known = known_weights(policy, weights)
    try:
        policy.load_state_dict(known)
    except RuntimeError as error:
        raise UsageError(f"The weights are not those of the policy: {error}") from error


def known_weights(policy: Any, weights: PolicyWeights) -> Mapping[str, Any]:
    """Return weights by name, if they are a policy's."""
    if not isinstance(policy, torch.nn.Module):
        raise UsageError(
            "update_policy_weights_ is for a policy that is a torch module; this one is "
            f"{type(policy).__name__}."
        )
    by_name = _weights_of(weights)
    if by_name.keys() != policy.state_dict().keys():
        raise UsageError(
            f"The weights are not those of the policy. Expected: {[*policy.state_dict()]}. "
            f"Found: {[*by_name]}."
        )
    return by_name


def _weights_of(weights: Any) -> Mapping[str, Any]:
    """Return weights by name, of a module, of a TensorDict or of a mapping."""
    if isinstance(weights, torch.nn.Module):
        return weights.state_dict()
    if isinstance(weights, TensorDictBase):
        return {str(key): value for key, value in weights.flatten_keys(".").items()}
    if isinstance(weights, Mapping):
        return weights
    raise UsageError(
        "Weights are a module, its state_dict or a TensorDict of them, not "
        f"{type(weights).__name__}."
    )
