"""A collector in several processes that wait for each other."""

from __future__ import annotations

import torch
from tensordict import TensorDict

from datasets_cli.environments.collectors.data_collector import DataCollector
from datasets_cli.environments.collectors.options import COLLECTOR, JoinedProcesses
from datasets_cli.environments.collectors.processes import Processes
from datasets_cli.errors import UsageError
from datasets_cli.options import takes_fields
from datasets_cli.replay.torchrl_words import takes


@takes(**COLLECTOR)
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

    @takes_fields(JoinedProcesses)
    def __init__(self, options: JoinedProcesses) -> None:
        super().__init__(options)
        frames, count = self.frames_per_batch, len(options.create_env_fn)
        if frames % count:
            raise UsageError(
                f"frames_per_batch is {frames}, which cannot be divided among {count} processes: "
                "each collects equally many."
            )
        self._joined = options.cat_results
        self._update_at_each_batch = options.update_at_each_batch
        self._source: Processes = Processes(options, options.source(frames // count))
        self._delivery.place(self._source.devices[0])

    def _collect(self) -> TensorDict:
        if self._update_at_each_batch:
            self.update_policy_weights_()
        is_random = self._delivery.is_random(self._delivery.frames)
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


MultiSyncDataCollector = MultiSyncCollector
