"""A collector in this process."""

from __future__ import annotations

from tensordict import TensorDict

from datasets_cli.environments.collectors.data_collector import DataCollector
from datasets_cli.environments.collectors.options import COLLECTOR, OneProcess
from datasets_cli.environments.collectors.source import Source, environment_of
from datasets_cli.options import takes_fields
from datasets_cli.replay.torchrl_words import takes


@takes(**COLLECTOR)
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

    @takes_fields(OneProcess)
    def __init__(self, options: OneProcess) -> None:
        super().__init__(options)
        self.env = environment_of(options.create_env_fn, options.create_env_kwargs)
        self._delivery.place(self.env.device)
        self._source: Source = Source(
            self.env, options.policy, options.source(self.frames_per_batch)
        )

    def _collect(self) -> TensorDict:
        delivery = self._delivery
        return self._source.collect(random=delivery.is_random(delivery.frames))


SyncDataCollector = Collector
