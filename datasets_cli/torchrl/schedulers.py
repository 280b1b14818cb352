"""TorchRL's schedulers: each call of ``step`` changes a number of a sampler, such as ``beta``.

TorchRL's schedulers accept only TorchRL's samplers and buffers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from datasets_cli.core.options import check_choice
from datasets_cli.errors import UsageError, WrongState
from datasets_cli.replay.arguments import StateDict, whole_number
from datasets_cli.replay.buffer.buffer import ReplayBuffer
from datasets_cli.replay.samplers.protocol import Sampler

MODES: dict[str, Callable[[float, float], float]] = {
    "multiplicative": lambda value, gamma: value * gamma,
    "additive": lambda value, gamma: value + gamma,
}


class ParameterScheduler(ABC):
    """Changes a number of a sampler with every ``step``."""

    def __init__(
        self,
        obj: ReplayBuffer | Sampler,
        param_name: str,
        min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:
        sampler = obj.sampler if isinstance(obj, ReplayBuffer) else obj
        value = getattr(sampler, param_name, None)
        if not isinstance(value, int | float):
            raise UsageError(
                f"{type(self).__name__} changes a number; {type(sampler).__name__} has no number "
                f"{param_name!r}.",
                argument="param_name",
                expected="a numeric attribute of the sampler",
                found=param_name,
                advice="A PrioritizedSampler has 'alpha' and 'beta'.",
            )
        self.sampler = sampler
        self.param_name = param_name
        self.min_value = min_value
        self.max_value = max_value
        self.initial_value = value
        self.num_steps_done = 0

    def step(self) -> None:
        """Set the number to its next value."""
        self.num_steps_done += 1
        value = self._value(getattr(self.sampler, self.param_name))
        if self.min_value is not None:
            value = max(value, self.min_value)
        if self.max_value is not None:
            value = min(value, self.max_value)
        setattr(self.sampler, self.param_name, value)

    def state_dict(self) -> StateDict:
        """Return the number of steps, the initial value and the current value."""
        return {
            "num_steps_done": self.num_steps_done,
            "initial_value": self.initial_value,
            "value": getattr(self.sampler, self.param_name),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the steps and the values of a state.

        Raises:
            WrongState: the state has other entries.
        """
        if not isinstance(state_dict, Mapping) or state_dict.keys() != self.state_dict().keys():
            raise WrongState(
                f"The state does not belong to a {type(self).__name__}; expected the entries "
                f"{', '.join(self.state_dict())}.",
                argument="state_dict",
                expected=[*self.state_dict()],
                found=[*state_dict] if isinstance(state_dict, Mapping) else state_dict,
                advice="Load a state that state_dict() of such a scheduler returned.",
            )
        self.num_steps_done = whole_number("num_steps_done", state_dict["num_steps_done"], 0)
        self.initial_value = state_dict["initial_value"]
        setattr(self.sampler, self.param_name, state_dict["value"])

    @abstractmethod
    def _value(self, value: float) -> float:
        """Return the next value of a number."""


class LinearScheduler(ParameterScheduler):
    """Moves a number of a sampler in equal steps to a last value, where it stays.

    With ``final_value=1.0, num_steps=3`` a ``beta`` of 0.4 becomes 0.6, 0.8 and 1.0.

    Args:
        obj: the sampler, or the buffer that draws by it.
        param_name: the attribute, such as ``"beta"``.
        final_value: the last value.
        num_steps: steps until then, at least 1.

    Raises:
        UsageError: the sampler has no such number, or ``num_steps`` is out of range.
    """

    def __init__(
        self, obj: ReplayBuffer | Sampler, param_name: str, final_value: float, num_steps: int
    ) -> None:
        super().__init__(obj, param_name)
        self.final_value = final_value
        self.num_steps = whole_number("num_steps", num_steps, 1)

    def _value(self, value: float) -> float:
        if self.num_steps_done >= self.num_steps:
            return self.final_value
        increment = (self.final_value - self.initial_value) / self.num_steps
        return self.initial_value + increment * self.num_steps_done


class StepScheduler(ParameterScheduler):
    """Multiplies a number of a sampler, or adds to it, every few steps.

    Args:
        obj: the sampler, or the buffer that draws by it.
        param_name: the attribute, such as ``"beta"``.
        gamma: the factor or summand of each change.
        n_steps: steps between two changes, at least 1.
        mode: ``"multiplicative"`` or ``"additive"``.
        min_value: the lower limit; none by default.
        max_value: the upper limit; none by default.

    Raises:
        UsageError: the sampler has no such number, or ``n_steps`` or ``mode`` is out of range.
    """

    def __init__(
        self,
        obj: ReplayBuffer | Sampler,
        param_name: str,
        gamma: float = 0.9,
        n_steps: int = 1,
        mode: str = "multiplicative",
        min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:
        super().__init__(obj, param_name, min_value, max_value)
        check_choice("mode", mode, MODES)
        self.gamma = gamma
        self.n_steps = whole_number("n_steps", n_steps, 1)
        self.mode = mode

    def _value(self, value: float) -> float:
        changes = self.num_steps_done % self.n_steps == 0
        return MODES[self.mode](value, self.gamma) if changes else value
