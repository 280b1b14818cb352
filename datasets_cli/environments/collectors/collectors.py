"""Collectors: in this process, in several that wait for each other, and in several that do not."""

from __future__ import annotations

import torch
from tensordict import TensorDict

from datasets_cli.environments.collectors.data_collector import DataCollector
from datasets_cli.environments.collectors.options import (
    JoinedProcesses,
    OneProcess,
    SeveralProcesses,
    share_of,
)
from datasets_cli.environments.collectors.processes import Processes
from datasets_cli.environments.collectors.source import BatchSource, environment_of
from datasets_cli.environments.collectors.words import ASYNC, ONE, SEVERAL
from datasets_cli.errors import UsageError
from datasets_cli.options import takes_fields
from datasets_cli.replay.torchrl_words import takes


@takes(**ONE)
class Collector(DataCollector):
    """Collects rows from an environment in this process, batch after batch.

        collector = Collector(GymEnv("CartPole-v1"), frames_per_batch=200, total_frames=1000)
        for batch in collector:
            replay_buffer.extend(batch)

    Trajectories begin again when they end, and not between two batches. The environment is reset,
    and the policy called once, when the collector is made.

    Raises:
        UsageError: numbers do not fit together, or the policy does not give actions.
    """

    _source: BatchSource

    @takes_fields(OneProcess)
    def __init__(self, options: OneProcess) -> None:
        environment = environment_of(options.create_env_fn, options.create_env_kwargs, options)
        self.env = getattr(environment, "given", environment)
        source = BatchSource(environment, options.policy, options, options.frames[0])
        super().__init__(options, source, environment.device)

    def _collect(self) -> TensorDict:
        return self._source.collect(random=self._is_random(self._frames))


@takes(**SEVERAL)
class MultiSyncCollector(DataCollector):
    """Collects rows in several processes; a batch has equally many rows of each.

    Rows of one environment stay in one lane of the batch, and trajectories continue in the next
    batch, so that a buffer of as many dimensions holds them whole: with ``cat_results="stack"``,
    ``LazyTensorStorage(size, ndim=2)``, or ``ndim=3`` where environments are side by side.

    Processes are spawned. The random numbers of torch, numpy and Python in process w begin with a
    seed that torch's global ones give, plus w.

    Raises:
        UsageError: numbers do not fit together, or the policy does not give actions.
        RldsError: a process failed.
    """

    _source: Processes

    @takes_fields(JoinedProcesses)
    def __init__(self, options: JoinedProcesses) -> None:
        count = len(options.create_env_fn)
        frames = share_of("frames_per_batch", options.frames[0], count, "processes")
        self._joined = options.cat_results
        self._update_at_each_batch = options.update_at_each_batch
        source = Processes(options, frames)
        super().__init__(options, source, source.devices[0])

    def _collect(self) -> TensorDict:
        if self._update_at_each_batch:
            self.update_policy_weights_()
        is_random = self._is_random(self._frames)
        workers = range(len(self._source))
        for worker in workers:
            self._source.ask(worker, random=is_random)
        parts = [self._source.batch(worker) for worker in workers]
        if not isinstance(self._joined, int):
            return torch.stack(parts)
        if not -parts[0].ndim <= self._joined < parts[0].ndim:
            raise UsageError(
                f"cat_results is {self._joined}, and the batches of one process have "
                f"{parts[0].ndim} dimensions."
            )
        return torch.cat(parts, self._joined)


@takes(**ASYNC)
class MultiAsyncCollector(DataCollector):
    """Collects rows in several processes; a batch is of the one that is ready first.

    A process begins its next batch when one is taken, with the weights of that time. In a buffer
    the batches of several processes follow each other: a slice sampler with
    ``trajectory_key=("collector", "traj_ids")`` puts no rows of two trajectories into a slice, and
    cuts those that continue in a later batch.

    Processes are spawned. The random numbers of torch, numpy and Python in process w begin with a
    seed that torch's global ones give, plus w.

    Raises:
        UsageError: numbers do not fit together, or the policy does not give actions.
        RldsError: a process failed.
    """

    _source: Processes

    @takes_fields(SeveralProcesses)
    def __init__(self, options: SeveralProcesses) -> None:
        self._update_at_each_batch = options.update_at_each_batch
        source = Processes(options, options.frames[0])
        super().__init__(options, source, source.devices[0])

    def _collect(self) -> TensorDict:
        self._ask_idle(self._frames)
        batch = self._source.first_batch()
        if self._update_at_each_batch:
            self.update_policy_weights_()
        self._ask_idle(self._frames + self.frames_per_batch)
        return batch

    def _ask_idle(self, taken: int) -> None:
        """Begin a batch in every process that has none to do, as long as more are due."""
        for worker in range(len(self._source)):
            begun = taken + self._source.num_asked * self.frames_per_batch
            if not self._source.asked(worker) and self._is_due(begun):
                self._source.ask(worker, random=self._is_random(begun))


SyncDataCollector = Collector
MultiSyncDataCollector = MultiSyncCollector
MultiaSyncDataCollector = MultiAsyncCollector
