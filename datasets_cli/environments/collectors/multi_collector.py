"""What collectors in several processes have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from datasets_cli.environments.collectors.data_collector import DataCollector
from datasets_cli.environments.collectors.options import SeveralProcesses
from datasets_cli.environments.collectors.processes import Processes
from datasets_cli.environments.collectors.source import SourceOptions, State, Weights, known_weights
from datasets_cli.environments.collectors.worker import Job, job_of


class MultiCollector(DataCollector):
    """Collects rows in several processes."""

    def __init__(self, options: SeveralProcesses, frames_of_each: int) -> None:
        super().__init__(options)
        self._policy = options.policy
        self._update_at_each_batch = options.update_at_each_batch
        self._processes = Processes(_jobs(options, options.source(frames_of_each)))
        if self._delivery.storing_device is None:
            self._delivery.storing_device = self._processes.devices[0]

    def _set_seed(self, seed: int, static_seed: bool) -> int:
        self._drop()
        for worker in range(len(self._processes)):
            seed = self._processes.call(worker, "seed", seed, static_seed)
        return seed

    def _reset(self) -> None:
        self._drop()
        self._call_all("reset")

    def _update_weights(self, weights: Weights) -> None:
        self._check_open()
        given = self._policy if weights is None else weights
        self._processes.set_weights(known_weights(self._policy, given))

    def _ask(self, worker: int, begun: int) -> None:
        """Begin a batch in a process, after some frames."""
        self._processes.ask(worker, random=self._delivery.is_random(begun))

    def _drop(self) -> None:
        """Drop the batches that are being collected."""
        for worker in range(len(self._processes)):
            if self._processes.asked(worker):
                self._processes.batch(worker)

    def _call_all(self, name: str) -> list[Any]:
        return [self._processes.call(worker, name) for worker in range(len(self._processes))]

    def _states(self) -> list[State]:
        return self._call_all("state")

    def _load_states(self, states: list[State]) -> None:
        self._drop()
        for worker, state in enumerate(states):
            self._processes.call(worker, "load", state)

    def _close(self) -> None:
        self._processes.close()

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({len(self._processes)} processes, "
            f"frames_per_batch={self.frames_per_batch}, total_frames={self.total_frames})"
        )


def _jobs(options: SeveralProcesses, source: SourceOptions) -> list[Job]:
    functions, arguments = options.create_env_fn, options.create_env_kwargs
    count = len(functions)
    given = arguments if isinstance(arguments, Sequence) else [arguments] * count
    seed = int(torch.randint(2**62, ()))  # of torch's global random numbers
    return [
        job_of(
            functions[worker],
            given[worker],
            options.policy,
            replace(source, worker=worker, num_workers=count),
            seed + worker,
        )
        for worker in range(count)
    ]
