"""What collectors in several processes have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from datasets_cli.environments.collectors.data_collector import DataCollector
from datasets_cli.environments.collectors.delivery import Delivery
from datasets_cli.environments.collectors.processes import Processes
from datasets_cli.environments.collectors.source import SourceOptions, State, Weights, weights_of
from datasets_cli.environments.collectors.worker import Job, job_of
from datasets_cli.environments.environment import Environment
from datasets_cli.errors import UsageError

Arguments = Mapping[str, Any] | Sequence[Mapping[str, Any]] | None


class MultiCollector(DataCollector):
    """Collects rows in several processes."""

    def __init__(
        self,
        functions: Sequence[Any],
        arguments: Arguments,
        policy: Any,
        delivery: Delivery,
        options: SourceOptions,
        update_at_each_batch: bool,
    ) -> None:
        super().__init__(delivery)
        self._policy = policy
        self._update_at_each_batch = update_at_each_batch
        self._processes = Processes(_jobs(functions, arguments, policy, options))
        if delivery.storing_device is None:
            delivery.storing_device = self._processes.devices[0]

    def _set_seed(self, seed: int, static_seed: bool) -> int:
        self._drop()
        for worker in range(len(self._processes)):
            seed = self._processes.call(worker, "seed", seed, static_seed)
        return seed

    def reset(self) -> None:
        """Begin new trajectories in every environment."""
        self._check_open()
        self._drop()
        self._call_all("reset")

    def update_policy_weights_(self, policy_or_weights: Weights = None) -> None:
        """Give the policy other weights, in every process from its next batch on.

        Args:
            policy_or_weights: a module, its ``state_dict`` or a TensorDict of it; where None, the
                policy that the collector was given, as it is now.

        Raises:
            UsageError: the policy has no weights.
        """
        self._check_open()
        if not isinstance(self._policy, torch.nn.Module):
            raise UsageError(
                "update_policy_weights_ is for a policy that is a torch module; this one is "
                f"{type(self._policy).__name__}."
            )
        given = self._policy if policy_or_weights is None else policy_or_weights
        weights = weights_of(given)
        if weights.keys() != self._policy.state_dict().keys():
            raise UsageError(
                f"The weights are not those of the policy. Expected: "
                f"{[*self._policy.state_dict()]}. Found: {[*weights]}."
            )
        self._processes.set_weights(weights)

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


def functions_of(create_env_fn: Any) -> list[Any]:
    """Return what makes the environment of each process."""
    if not isinstance(create_env_fn, Sequence) or not create_env_fn:
        raise UsageError(
            "A collector of several processes takes a list of environments or of functions that "
            f"make them, one of each process, such as [make_env] * 4, not {create_env_fn!r}."
        )
    for number, function in enumerate(create_env_fn):
        if not callable(function) and not isinstance(function, Environment):
            raise UsageError(
                f"Process {number} has {function!r}. Expected: an environment, such as "
                "ParallelEnv(2, make_env), or a function that makes one."
            )
    return [*create_env_fn]


def _jobs(
    functions: Sequence[Any],
    arguments: Arguments,
    policy: Any,
    options: SourceOptions,
) -> list[Job]:
    count = len(functions)
    given = [*arguments] if isinstance(arguments, Sequence) else [arguments] * count
    if len(given) != count:
        raise UsageError(
            f"create_env_kwargs must be one mapping, or one for each of {count} processes, not "
            f"{len(given)}."
        )
    seed = int(torch.randint(2**62, ()))  # of torch's global random numbers
    return [
        job_of(
            functions[worker],
            given[worker],
            policy,
            replace(options, worker=worker, num_workers=count),
            seed + worker,
        )
        for worker in range(count)
    ]
