"""A collector in this process."""

from __future__ import annotations

from tensordict import TensorDict

from datasets_cli.environments.collectors.data_collector import DataCollector
from datasets_cli.environments.collectors.options import COLLECTOR, OneProcess
from datasets_cli.environments.collectors.source import Source, State, Weights, environment_of
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
        self._delivery.storing_device = self._delivery.storing_device or self.env.device
        self._source = Source(self.env, options.policy, options.source(self.frames_per_batch))

    def _collect(self) -> TensorDict:
        delivery = self._delivery
        return self._source.collect(random=delivery.is_random(delivery.frames))

    def _set_seed(self, seed: int, static_seed: bool) -> int:
        return self._source.set_seed(seed, static_seed)

    def _reset(self) -> None:
        self._source.reset()

    def _update_weights(self, weights: Weights) -> None:
        self._source.update_weights(weights)

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
