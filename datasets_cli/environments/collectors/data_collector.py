"""What every collector is: batches by iteration, seeds, weights and a state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from tensordict import TensorDictBase

from datasets_cli.environments.collectors.delivery import Delivery
from datasets_cli.environments.collectors.options import CollectorOptions
from datasets_cli.environments.collectors.source import State, Weights
from datasets_cli.errors import UsageError


class DataCollector(ABC):
    """Collects rows from environments, batch after batch."""

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
        return self._set_seed(seed, static_seed)

    @abstractmethod
    def _set_seed(self, seed: int, static_seed: bool) -> int: ...

    def reset(self) -> None:
        """Begin new trajectories in every environment."""
        self._check_open()
        self._reset()

    @abstractmethod
    def _reset(self) -> None: ...

    def update_policy_weights_(self, policy_or_weights: Weights = None) -> None:
        """Give the policy other weights, in every process from its next batch on.

        Args:
            policy_or_weights: a module, its ``state_dict`` or a TensorDict of it; where None, the
                policy that the collector was given, as it is now, of which it has a copy where it
                is on another device or in another process.

        Raises:
            UsageError: the policy has no weights, or others.
        """
        self._update_weights(policy_or_weights)

    @abstractmethod
    def _update_weights(self, weights: Weights) -> None: ...

    def state_dict(self) -> State:
        """Return the counts of frames and trajectories, and the policy's state if it has one.

        Environments are not in it: after ``load_state_dict`` new trajectories begin.
        """
        self._check_open()
        delivery = self._delivery
        return {"frames": delivery.frames, "iter": delivery.batches, "sources": self._states()}

    @abstractmethod
    def _states(self) -> list[State]: ...

    def load_state_dict(self, state_dict: State) -> None:
        """Continue the counts of a state, with new trajectories.

        Raises:
            UsageError: it is not the state of such a collector.
        """
        self._check_open()
        states = state_dict.get("sources")
        if not isinstance(states, list) or len(states) != len(self._states()):
            raise UsageError(
                f"{type(self).__name__} has {len(self._states())} sources of batches. Expected: "
                "the state of one that has as many."
            )
        self._load_states(states)
        self._delivery.frames = state_dict["frames"]
        self._delivery.batches = state_dict["iter"]

    @abstractmethod
    def _load_states(self, states: list[State]) -> None: ...

    def shutdown(self) -> None:
        """Close the environments, and end the processes that they are in."""
        if not self.is_closed:
            self.is_closed = True
            self._close()

    @abstractmethod
    def _close(self) -> None: ...

    def _check_open(self) -> None:
        if self.is_closed:
            raise UsageError(f"{type(self).__name__} is shut down. Make another one.")
