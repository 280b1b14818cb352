"""The share of each member in the draws: by weights, or by an annealed fraction."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Literal

import torch

from datasets_cli.core.quantities import counted
from datasets_cli.errors import EmptyBuffer, WrongSize, WrongState, wrong_value
from datasets_cli.replay.arguments import StateDict, checked_fraction, whole_number
from datasets_cli.replay.mixing.members import MixtureStorage
from datasets_cli.replay.trajectories.bounds import TrajectoryKeys
from datasets_cli.schema.shapes import Shares

WeightsLike = Literal["rows", "trajectories"] | Sequence[float]
"""``"rows"`` or ``"trajectories"``, in proportion to their numbers; or a weight for each member."""

Anneal = Callable[[float, int], float]
"""A function of the first fraction and of the rows written since, which returns the fraction."""


def weight_numbers(
    name: str, weights: Sequence[float], members: Sequence[str]
) -> tuple[float, ...]:
    """Return a weight for each member, checked; the sum may differ from 1."""
    try:
        numbers = tuple(float(number) for number in weights)
    except (TypeError, ValueError, OverflowError) as error:
        raise wrong_value(name, "a number for each member", weights) from error
    if len(numbers) != len(members):
        raise WrongSize(
            f"{name}: found {counted(len(numbers), 'weight')} for "
            f"{counted(len(members), 'member')}: {', '.join(members)}.",
            argument=name,
            expected=len(members),
            found=len(numbers),
        )
    if not all(number >= 0 for number in numbers) or not 0 < sum(numbers) < math.inf:
        raise wrong_value(name, "non-negative numbers with a finite sum above 0", numbers)
    return numbers


class MixtureWeights:
    """The probability that a draw is from each member."""

    def __init__(self, weights: WeightsLike, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self.value: str | tuple[float, ...]
        if not isinstance(weights, str):
            self.value = weight_numbers("weights", weights, names)
        elif weights in ("rows", "trajectories"):
            self.value = weights
        else:
            raise wrong_value(
                "weights", "'rows', 'trajectories' or a number for each member", weights
            )
        self._known: tuple[MixtureStorage, int, Shares] | None = None

    def shares(self, storage: MixtureStorage) -> Shares:
        """Return the share of each member; cached until rows are written."""
        known = self._known
        if known is None or known[:2] != (storage, storage.revision):
            self._known = known = (storage, storage.revision, self._shares(storage))
        return known[2]

    def _shares(self, storage: MixtureStorage) -> Shares:
        lengths = storage.lengths.double()
        if self.value == "rows":
            numbers = lengths
        elif self.value == "trajectories":
            keys = TrajectoryKeys()
            counts = [len(part.trajectories(keys).starts) for part in storage.storages]
            numbers = torch.tensor(counts, dtype=torch.float64)
        else:
            numbers = torch.tensor(self.value, dtype=torch.float64)
        if bool(((numbers > 0) & (lengths == 0)).any()) or not bool(lengths.any()):
            empty = [name for name, length in zip(self._names, lengths, strict=True) if not length]
            raise EmptyBuffer(
                f"{', '.join(empty)}: the member is empty, but its weight is above 0.",
                found=empty,
                advice="Write rows first, or give the member the weight 0.",
            )
        return numbers / numbers.sum()

    def state(self) -> str | list[float]:
        """Return the weights as values of a state."""
        return self.value if isinstance(self.value, str) else list(self.value)

    def check_state(self, state: Mapping[str, object], **settings: object) -> None:
        """Check that a state has the same weights and settings."""
        advice = "Make the mixture with the settings of the state, or start without the state."
        current = {"weights": self.state(), **settings}
        check_settings(state, current, "The state of the mixture", advice)

    def __getstate__(self) -> StateDict:
        return {**self.__dict__, "_known": None}  # computed again from the storage


@dataclass(frozen=True)
class LinearAnneal:
    """Anneals the fraction of offline rows linearly while rows are written online.

    >>> anneal = LinearAnneal(to=0.1, over=100_000)
    >>> round(anneal(0.5, 50_000), 3)  # after half of the rows
    0.3

    Args:
        to: the final fraction, from 0 to 1.
        over: rows written until the fraction is ``to``.

    Raises:
        UsageError: a number is out of its range.
    """

    to: float
    over: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "to", checked_fraction("to", self.to))
        object.__setattr__(self, "over", whole_number("over", self.over, 1))

    def __call__(self, fraction: float, num_written: int) -> float:
        """Return the fraction after ``num_written`` rows, from ``fraction`` at the start."""
        progress = min(num_written / self.over, 1.0)
        return (1 - progress) * fraction + progress * self.to  # exact at both ends


class OfflineShare:
    """The number of offline units, rows or slices, of each batch.

    The number is rounded, and the remainder is carried to the next batch:

        4 rows at 0.3     1.2   1.4   1.6   0.8     with the remainder of the batch before
        offline           1     1     2     1       5 of 16; 0.3 of 16 is 4.8

    After any number of batches the offline units differ by at most half a unit from the sum of the
    fractions. The numbers are deterministic.
    """

    def __init__(self, fraction: float, anneal: Anneal | None, min_online: int) -> None:
        self.start = checked_fraction("fraction", fraction)
        if anneal is not None and not callable(anneal):
            raise wrong_value(
                "anneal",
                "a function such as LinearAnneal(to=0.1, over=100_000)",
                anneal,
            )
        self.anneal = anneal
        self.min_online = whole_number("min_online", min_online, 1)
        self.carried = 0.0

    def fraction(self, num_online: int, num_written: int) -> float:
        """Return the fraction of offline rows in the next batch."""
        if num_online < self.min_online:
            return 1.0
        if self.anneal is None:
            return self.start
        return checked_fraction("anneal", self.anneal(self.start, num_written))

    def split(self, units: int, fraction: float) -> tuple[int, float]:
        """Return the number of offline units of a batch, and the remainder to carry."""
        due = units * fraction + self.carried
        # The limits matter where the sum has a rounding error.
        count = max(0, min(units, math.floor(due + 0.5)))
        return count, due - count

    def state(self) -> StateDict:
        """Return the settings and the carried remainder, as plain values."""
        return {**self._settings(), "carried": self.carried}

    def plan_restore(self, state: object, source: str) -> Callable[[], None]:
        """Check a state; return the function that restores it."""
        saved = state if isinstance(state, dict) else {}
        carried = saved.get("carried")
        if not isinstance(carried, float) or not abs(carried) <= 0.5:
            raise WrongState(
                f"{source}: 'carried' must be a number from -0.5 to 0.5, not {carried!r}.",
                key="carried",
                expected="a number from -0.5 to 0.5",
                found=carried,
                advice="Save it again.",
            )
        advice = (
            "Make the pair with the settings of the state; for another fraction, load the state of "
            "online into the online buffer."
        )
        check_settings(saved, self._settings(), source, advice)
        return partial(setattr, self, "carried", carried)

    def _settings(self) -> StateDict:
        """Return the arguments that draws depend on; a function is only named as such."""
        anneal: StateDict | str | None = None if self.anneal is None else "a function"
        if isinstance(self.anneal, LinearAnneal):
            anneal = asdict(self.anneal)
        return {"fraction": self.start, "anneal": anneal, "min_online": self.min_online}


def check_settings(
    saved: Mapping[str, object], current: StateDict, source: str, advice: str
) -> None:
    """Check that a state was saved with the current settings."""
    if odd := [name for name in current if saved.get(name) != current[name]]:
        found, expected = (
            ", ".join(f"{name}={settings.get(name)!r}" for name in odd)
            for settings in (saved, current)
        )
        raise WrongState(
            f"{source} has {found}; expected {expected}.",
            expected=expected,
            found=found,
            advice=advice,
        )
