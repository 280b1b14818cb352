"""The weights of a mixture: how large a part of the draws each member has."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch

from datasets_cli.errors import EmptyBuffer, UsageError
from datasets_cli.replay.mixtures.storage import MixtureStorage
from datasets_cli.replay.trajectories.boundaries import TrajectoryKeys

WeightsLike = Literal["rows", "trajectories"] | Sequence[float]
"""What weights follow from, or a number for each member."""


class Weights:
    """How likely a row of a draw is of each member."""

    def __init__(self, given: WeightsLike, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self.given: str | tuple[float, ...]
        if isinstance(given, str):
            if given not in ("rows", "trajectories"):
                raise UsageError(
                    f"weights is 'rows', 'trajectories' or a number for each member, not {given!r}."
                )
            self.given = given
        else:
            self.given = _checked_numbers(given, self._names)
        self._known: tuple[MixtureStorage, int, torch.Tensor] | None = None

    def shares(self, storage: MixtureStorage) -> torch.Tensor:
        """Return the part of each member, float64 ``[M]`` with the sum 1."""
        known = self._known
        if known is None or known[:2] != (storage, storage.revision):
            self._known = known = (storage, storage.revision, self._shares(storage))
        return known[2]

    def _shares(self, storage: MixtureStorage) -> torch.Tensor:
        lengths = storage.lengths.double()
        if self.given == "rows":
            numbers = lengths
        elif self.given == "trajectories":
            keys = TrajectoryKeys()
            counts = [len(part.trajectories(keys).starts) for part in storage.storages]
            numbers = torch.tensor(counts, dtype=torch.float64)
        else:
            numbers = torch.tensor(self.given, dtype=torch.float64)
        if bool(((numbers > 0) & (lengths == 0)).any()) or not bool(lengths.any()):
            empty = [name for name, length in zip(self._names, lengths, strict=True) if not length]
            raise EmptyBuffer(
                f"{', '.join(empty)}: no rows to draw, and the weights ask for some. Write rows "
                "first, or give the member the weight 0."
            )
        return numbers / numbers.sum()

    def state(self) -> str | list[float]:
        """Return what a state keeps of the weights."""
        return self.given if isinstance(self.given, str) else list(self.given)

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Check that a state is of draws by the same weights."""
        if (found := state.get("weights")) != self.state():
            raise UsageError(
                f"The state is of a mixture with the weights {found}, not {self.state()}. Give the "
                "mixture the same weights to continue, or begin without this state."
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_known": None}  # worked out again from the storage


def _checked_numbers(given: Any, names: Sequence[str]) -> tuple[float, ...]:
    try:
        numbers = tuple(float(number) for number in given)
    except (TypeError, ValueError) as error:
        raise UsageError(f"Weights are numbers, one for each member, not {given!r}.") from error
    if len(numbers) != len(names):
        raise UsageError(
            f"There are {len(numbers)} weights for {len(names)} members: {', '.join(names)}."
        )
    if not all(math.isfinite(number) and number >= 0 for number in numbers) or not any(numbers):
        raise UsageError(
            f"Weights must be finite and non-negative, with at least one above 0, not {numbers}."
        )
    return numbers
