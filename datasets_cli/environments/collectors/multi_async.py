"""A collector in several processes, of which the first to be ready is served."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from tensordict import TensorDict
from tensordict.nn import InteractionType

from datasets_cli.environments.collectors.data_collector import COLLECTOR, device_of, interaction_of
from datasets_cli.environments.collectors.delivery import Delivery, Extendable
from datasets_cli.environments.collectors.multi_collector import (
    Arguments,
    MultiCollector,
    functions_of,
)
from datasets_cli.environments.collectors.source import SourceOptions
from datasets_cli.replay.torchrl_words import takes


@takes(**COLLECTOR)
class MultiAsyncCollector(MultiCollector):
    """Collects rows in several processes; a batch is of the one that is ready first.

    A process begins its next batch when one is taken, with the weights of that time. In a buffer
    the batches of several processes follow each other: a slice sampler with
    ``trajectory_key=("collector", "traj_ids")`` puts no rows of two trajectories into a slice, and
    cuts those that continue in a later batch.

    Processes are spawned. The random numbers of torch, numpy and Python in process w begin with a
    seed that torch's global ones give, plus w.

    Args:
        create_env_fn: for each process, an environment that was not begun, or a function that
            returns one.
        policy: a function of a TensorDict that writes an action, or a module; random actions where
            None. Each process has a copy.
        frames_per_batch: rows of a batch, which is of one process.
        total_frames: after which it ends, a multiple of ``frames_per_batch``; -1: never.
        device: of policy and batches where their own is not given.
        storing_device: where batches go; where the environments' tensors are where None.
        policy_device: where the policy is called; a module on another is copied to it.
        create_env_kwargs: of the functions; or one mapping for each.
        max_frames_per_traj: after which a trajectory is cut, by a truncated row; None: never.
        init_random_frames: of the first rows, by random actions; whole batches of them. What the
            policy writes besides the action is zero there.
        reset_at_each_iter: begin every batch with new trajectories.
        postproc: a function of a batch that returns another.
        split_trajs: give trajectories side by side, padded: see ``split_trajectories``.
        exploration_type: how distributions of TensorDict modules are sampled; at random where None.
        set_truncated: mark the last row of every lane as truncated, though it continues.
        replay_buffer: batches are written to it, and None is given.
        update_at_each_batch: do ``update_policy_weights_()`` before each batch.

    Raises:
        UsageError: numbers do not fit together, or the policy does not give actions.
        RldsError: a process failed.
    """

    def __init__(
        self,
        create_env_fn: Sequence[Any],
        policy: Any = None,
        *,
        frames_per_batch: int,
        total_frames: int = -1,
        device: str | torch.device | None = None,
        storing_device: str | torch.device | None = None,
        policy_device: str | torch.device | None = None,
        create_env_kwargs: Arguments = None,
        max_frames_per_traj: int | None = None,
        init_random_frames: int | None = None,
        reset_at_each_iter: bool = False,
        postproc: Callable[[Any], Any] | None = None,
        split_trajs: bool | None = None,
        exploration_type: InteractionType | str | None = None,
        set_truncated: bool = False,
        replay_buffer: Extendable | None = None,
        update_at_each_batch: bool = False,
    ) -> None:
        functions = functions_of(create_env_fn)
        delivery = Delivery(
            frames_per_batch,
            total_frames,
            init_random_frames,
            device_of(storing_device, device),
            split_trajs,
            postproc,
            replay_buffer,
        )
        options = SourceOptions(
            delivery.frames_per_batch,
            max_frames_per_traj,
            reset_at_each_iter,
            set_truncated,
            interaction_of(exploration_type),
            device_of(policy_device, device),
        )
        super().__init__(
            functions, create_env_kwargs, policy, delivery, options, update_at_each_batch
        )

    def _collect(self) -> TensorDict:
        self._ask_idle(self._delivery.frames)
        batch = self._processes.first_batch()
        if self._update_at_each_batch:
            self.update_policy_weights_()
        self._ask_idle(self._delivery.frames + self.frames_per_batch)
        return batch

    def _ask_idle(self, taken: int) -> None:
        """Begin a batch in every process that has none to do, as long as more are due."""
        for worker in range(len(self._processes)):
            begun = taken + self._processes.num_asked * self.frames_per_batch
            if not self._processes.asked(worker) and self._delivery.is_due(begun):
                self._ask(worker, begun)


MultiaSyncDataCollector = MultiAsyncCollector
