"""A collector in several processes, of which the first to be ready is served."""

from __future__ import annotations

from tensordict import TensorDict

from datasets_cli.environments.collectors.data_collector import DataCollector
from datasets_cli.environments.collectors.options import COLLECTOR, SeveralProcesses
from datasets_cli.environments.collectors.processes import Processes
from datasets_cli.options import takes_fields
from datasets_cli.replay.torchrl_words import takes


@takes(**COLLECTOR)
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

    @takes_fields(SeveralProcesses)
    def __init__(self, options: SeveralProcesses) -> None:
        super().__init__(options)
        self._update_at_each_batch = options.update_at_each_batch
        self._source: Processes = Processes(options, options.source(self.frames_per_batch))
        self._delivery.place(self._source.devices[0])

    def _collect(self) -> TensorDict:
        self._ask_idle(self._delivery.frames)
        batch = self._source.first_batch()
        if self._update_at_each_batch:
            self.update_policy_weights_()
        self._ask_idle(self._delivery.frames + self.frames_per_batch)
        return batch

    def _ask_idle(self, taken: int) -> None:
        """Begin a batch in every process that has none to do, as long as more are due."""
        for worker in range(len(self._source)):
            begun = taken + self._source.num_asked * self.frames_per_batch
            if not self._source.asked(worker) and self._delivery.is_due(begun):
                self._source.ask(worker, random=self._delivery.is_random(begun))


MultiaSyncDataCollector = MultiAsyncCollector
