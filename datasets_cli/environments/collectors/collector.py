"""A collector in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from tensordict import TensorDict
from tensordict.nn import InteractionType

from datasets_cli.environments.collectors.data_collector import (
    COLLECTOR,
    DataCollector,
    device_of,
    interaction_of,
)
from datasets_cli.environments.collectors.delivery import Delivery, Extendable
from datasets_cli.environments.collectors.source import (
    Source,
    SourceOptions,
    State,
    Weights,
    environment_of,
)
from datasets_cli.environments.environment import Environment
from datasets_cli.replay.torchrl_words import takes


@takes(**COLLECTOR)
class Collector(DataCollector):
    """Collects rows from an environment in this process, batch after batch.

        collector = Collector(GymEnv("CartPole-v1"), frames_per_batch=200, total_frames=1000)
        for batch in collector:
            replay_buffer.extend(batch)

    Trajectories begin again when they end, and not between two batches. The environment is reset,
    and the policy called once, when the collector is made.

    Args:
        create_env_fn: an environment, or a function that returns one; closed with the collector.
        policy: a function of a TensorDict that writes an action, or a module; random actions where
            None.
        frames_per_batch: rows of a batch, of all lanes of the environment together.
        total_frames: after which it ends, a multiple of ``frames_per_batch``; -1: never.
        device: of policy and batches where their own is not given.
        storing_device: where batches go; where the environment's tensors are where None.
        policy_device: where the policy is called; a module on another is copied to it.
        create_env_kwargs: of the function that returns an environment.
        max_frames_per_traj: after which a trajectory is cut, by a truncated row; None: never.
        init_random_frames: of the first rows, by random actions; whole batches of them. What the
            policy writes besides the action is zero there.
        reset_at_each_iter: begin every batch with new trajectories.
        postproc: a function of a batch that returns another.
        split_trajs: give trajectories side by side, padded: see ``split_trajectories``.
        exploration_type: how distributions of TensorDict modules are sampled; at random where None.
        set_truncated: mark the last row of every lane as truncated, though it continues.
        replay_buffer: batches are written to it, and None is given.

    Raises:
        UsageError: numbers do not fit together, or the policy does not give actions.
    """

    def __init__(
        self,
        create_env_fn: Environment | Callable[..., Any],
        policy: Any = None,
        *,
        frames_per_batch: int,
        total_frames: int = -1,
        device: str | torch.device | None = None,
        storing_device: str | torch.device | None = None,
        policy_device: str | torch.device | None = None,
        create_env_kwargs: Mapping[str, Any] | None = None,
        max_frames_per_traj: int | None = None,
        init_random_frames: int | None = None,
        reset_at_each_iter: bool = False,
        postproc: Callable[[Any], Any] | None = None,
        split_trajs: bool | None = None,
        exploration_type: InteractionType | str | None = None,
        set_truncated: bool = False,
        replay_buffer: Extendable | None = None,
    ) -> None:
        super().__init__(
            Delivery(
                frames_per_batch,
                total_frames,
                init_random_frames,
                device_of(storing_device, device),
                split_trajs,
                postproc,
                replay_buffer,
            )
        )
        options = SourceOptions(
            self.frames_per_batch,
            max_frames_per_traj,
            reset_at_each_iter,
            set_truncated,
            interaction_of(exploration_type),
            device_of(policy_device, device),
        )
        self.env = environment_of(create_env_fn, create_env_kwargs)
        self._delivery.storing_device = self._delivery.storing_device or self.env.device
        self._source = Source(self.env, policy, options)

    def _collect(self) -> TensorDict:
        delivery = self._delivery
        return self._source.collect(random=delivery.is_random(delivery.frames))

    def _set_seed(self, seed: int, static_seed: bool) -> int:
        return self._source.set_seed(seed, static_seed)

    def reset(self) -> None:
        """Begin new trajectories in every lane."""
        self._check_open()
        self._source.reset()

    def update_policy_weights_(self, policy_or_weights: Weights = None) -> None:
        """Give the policy other weights.

        Args:
            policy_or_weights: a module, its ``state_dict`` or a TensorDict of it; where None, those
                of the policy that the collector was given, of which it has a copy where it is on
                another device.

        Raises:
            UsageError: the policy has no weights, or others.
        """
        self._source.update_weights(policy_or_weights)

    def _states(self) -> list[State]:
        return [self._source.state_dict()]

    def _load_states(self, states: list[State]) -> None:
        self._source.load_state_dict(states[0])

    def _close(self) -> None:
        self._source.close()

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.env}, frames_per_batch={self.frames_per_batch}, "
            f"total_frames={self.total_frames})"
        )


SyncDataCollector = Collector
