"""A collector in several processes that wait for each other."""

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
from datasets_cli.errors import UsageError
from datasets_cli.replay.torchrl_words import takes


@takes(**COLLECTOR)
class MultiSyncCollector(MultiCollector):
    """Collects rows in several processes; a batch has equally many rows of each.

    Rows of one environment stay in one lane of the batch, and trajectories continue in the next
    batch, so that a buffer of as many dimensions holds them whole: with ``cat_results="stack"``,
    ``LazyTensorStorage(size, ndim=2)``, or ``ndim=3`` where environments are side by side.

    Processes are spawned. The random numbers of torch, numpy and Python in process w begin with a
    seed that torch's global ones give, plus w.

    Args:
        create_env_fn: for each process, an environment that was not begun, or a function that
            returns one.
        policy: a function of a TensorDict that writes an action, or a module; random actions where
            None. Each process has a copy.
        frames_per_batch: rows of a batch, of all processes together.
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
        cat_results: ``"stack"`` for a first dimension of processes, which None means too; or the
            dimension along which their batches are joined, where trajectories of two processes
            meet if it is that of time.

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
        cat_results: str | int | None = None,
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
            _share(delivery.frames_per_batch, len(functions)),
            max_frames_per_traj,
            reset_at_each_iter,
            set_truncated,
            interaction_of(exploration_type),
            device_of(policy_device, device),
        )
        self._dimension = _dimension_of(cat_results)
        super().__init__(
            functions, create_env_kwargs, policy, delivery, options, update_at_each_batch
        )

    def _collect(self) -> TensorDict:
        if self._update_at_each_batch:
            self.update_policy_weights_()
        workers = range(len(self._processes))
        for worker in workers:
            self._ask(worker, self._delivery.frames)
        parts = [self._processes.batch(worker) for worker in workers]
        if self._dimension is None:
            return torch.stack(parts)
        if not -parts[0].ndim <= self._dimension < parts[0].ndim:
            raise UsageError(
                f"cat_results is {self._dimension}, and the batches of one process have "
                f"{parts[0].ndim} dimensions."
            )
        return torch.cat(parts, self._dimension)


def _dimension_of(cat_results: str | int | None) -> int | None:
    if cat_results is None or cat_results == "stack":
        return None
    if type(cat_results) is not int:
        raise UsageError(f"cat_results is 'stack' or a dimension, such as 0, not {cat_results!r}.")
    return cat_results


def _share(frames: int, num_workers: int) -> int:
    if frames % num_workers:
        raise UsageError(
            f"frames_per_batch is {frames}, which cannot be divided among {num_workers} "
            "processes: each collects equally many."
        )
    return frames // num_workers


MultiSyncDataCollector = MultiSyncCollector
