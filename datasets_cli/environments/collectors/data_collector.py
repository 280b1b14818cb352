"""What every collector is: batches by iteration, seeds, weights and a state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Protocol

from tensordict import TensorDictBase

from datasets_cli.environments.collectors.delivery import Delivery
from datasets_cli.environments.collectors.options import CollectorOptions
from datasets_cli.environments.collectors.source import State, Weights
from datasets_cli.errors import UsageError


class Sources(Protocol):
    """What batches come from: a source in this process, or one in each of several."""

    def set_seed(self, seed: int, static_seed: bool) -> int:
        """Seed the environments, in which new trajectories begin; return the next seed."""

    def reset(self) -> None:
        """Begin new trajectories."""

    def update_weights(self, weights: Weights) -> None:
        """Give the policy other weights."""

    def states(self) -> list[State]:
        """Return how many trajectories each source had, and its policy's state if it has one."""

    def load_states(self, states: list[State]) -> None:
        """Begin new trajectories, with the numbers after those of the states."""

    def close(self) -> None:
        """Close the environments, and end the processes that they are in."""


class DataCollector(ABC):
    """Collects rows from environments, batch after batch."""

    _source: Sources

    def __init__(self, options: CollectorOptions) -> None:
        self._delivery = Delivery(options)
        self.frames_per_batch = self._delivery.frames_per_batch
        self.total_frames = self._delivery.total_frames
        self.is_closed = False

    def __iter__(self) -> Iterator[TensorDictBase | None]:
        """Yield batches until there were ``total_frames``; a second loop continues the first."""
        while self._delivery.is_due(self._delivery.frames):
            yield self.next()

    def next(self) -> TensorDictBase | None:
        """Return the next batch; None where it is written to a replay buffer.

        Raises:
            UsageError: the collector is shut down, or there were ``total_frames``.
        """
        self._check_open()
        if not self._delivery.is_due(self._delivery.frames):
            raise UsageError(f"The collector has given all of its {self.total_frames} frames.")
        return self._delivery.deliver(self._collect())

    @abstractmethod
    def _collect(self) -> TensorDictBase:
        """Return the rows of the next batch."""

    def set_seed(self, seed: int, static_seed: bool = False) -> int:
        """Reset every environment with a seed; return the first seed that was not used.

        Args:
            seed: of the first environment; the others have the numbers after it.
            static_seed: give every environment the same seed, and return it.
        """
        self._check_open()
        return self._source.set_seed(seed, static_seed)

    def reset(self) -> None:
        """Begin new trajectories in every environment."""
        self._check_open()
        self._source.reset()

    def update_policy_weights_(self, policy_or_weights: Weights = None) -> None:
        """Give the policy other weights, in every process from its next batch on.

        Args:
            policy_or_weights: a module, its ``state_dict`` or a TensorDict of it; where None, the
                policy that the collector was given, as it is now, of which it has a copy where it
                is on another device or in another process.

        Raises:
            UsageError: the policy has no weights, or others.
        """
        self._check_open()
        self._source.update_weights(policy_or_weights)

    def state_dict(self) -> State:
        """Return the counts of frames and trajectories, and the policy's state if it has one.

        Environments are not in it: after ``load_state_dict`` new trajectories begin.
        """
        self._check_open()
        delivery = self._delivery
        return {
            "frames": delivery.frames,
            "iter": delivery.batches,
            "sources": self._source.states(),
        }

    def load_state_dict(self, state_dict: State) -> None:
        """Continue the counts of a state, with new trajectories.

        Raises:
            UsageError: it is not the state of such a collector.
        """
        self._check_open()
        states, count = state_dict.get("sources"), len(self._source.states())
        if not isinstance(states, list) or len(states) != count:
            raise UsageError(
                f"{type(self).__name__} has {count} sources of batches. Expected: the state of one "
                "that has as many."
            )
        self._source.load_states(states)
        self._delivery.frames = state_dict["frames"]
        self._delivery.batches = state_dict["iter"]

    def shutdown(self) -> None:
        """Close the environments, and end the processes that they are in."""
        if not self.is_closed:
            self.is_closed = True
            self._source.close()

    def _check_open(self) -> None:
        if self.is_closed:
            raise UsageError(f"{type(self).__name__} is shut down. Make another one.")

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self._source}, frames_per_batch={self.frames_per_batch}, "
            f"total_frames={self.total_frames})"
        )
