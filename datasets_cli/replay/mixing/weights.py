"""How large a part of the draws each member has: by weights, or by a fraction that moves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Literal

import torch

from datasets_cli.errors import EmptyBuffer, UsageError
from datasets_cli.quantities import counted
from datasets_cli.replay.arguments import StateDict, whole_number
from datasets_cli.replay.mixing.storage import MixtureStorage
from datasets_cli.replay.trajectories.bounds import TrajectoryKeys

WeightsLike = Literal["rows", "trajectories"] | Sequence[float]
"""What weights follow from, or a number for each member."""

Anneal = Callable[[float, int], float]
"""Takes the fraction at the beginning and the rows written since; returns the fraction now."""


def weight_numbers(name: str, given: Sequence[float], members: Sequence[str]) -> tuple[float, ...]:
    """Return a weight for each member, checked; they need not have the sum 1."""
    try:
        numbers = tuple(float(number) for number in given)
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"{name} has a number for each member, and is not {given!r}.") from error
    if len(numbers) != len(members):
        raise UsageError(
            f"{name}: found {counted(len(numbers), 'weight')} for "
            f"{counted(len(members), 'member')}: "
            f"{', '.join(members)}."
        )
    if not all(number >= 0 for number in numbers) or not 0 < sum(numbers) < math.inf:
        raise UsageError(
            f"{name} must be non-negative, with at least one above 0 and a finite sum, not "
            f"{numbers}."
        )
    return numbers


class MixtureWeights:
    """How likely a row of a draw is of each member."""

    def __init__(self, given: WeightsLike, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self.given: str | tuple[float, ...]
        if not isinstance(given, str):
            self.given = weight_numbers("weights", given, names)
        elif given in ("rows", "trajectories"):
            self.given = given
        else:
            raise UsageError(
                f"weights is 'rows', 'trajectories' or a number for each member, not {given!r}."
            )
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

    def check_state(self, state: Mapping[str, object], **others: object) -> None:
        """Check that a state is of draws by the same weights and other settings."""
        remedy = "Make the mixture with the same to continue, or begin without this state."
        ours = {"weights": self.state(), **others}
        check_settings(state, ours, "The state of the mixture", remedy)

    def __getstate__(self) -> StateDict:
        return {**self.__dict__, "_known": None}  # worked out again from the storage


@dataclass(frozen=True)
class LinearAnneal:
    """Moves the fraction of offline rows in a straight line while rows are written online.

    >>> anneal = LinearAnneal(to=0.1, over=100_000)
    >>> round(anneal(0.5, 50_000), 3)  # after half of the rows
    0.3

    Args:
        to: the last fraction, from 0 to 1, where it stays.
        over: rows written until then.

    Raises:
        UsageError: a number is out of its range.
    """

    to: float
    over: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "to", checked_fraction("to", self.to))
        object.__setattr__(self, "over", whole_number("over", self.over, 1))

    def __call__(self, fraction: float, num_written: int) -> float:
        """Return the fraction after ``num_written`` rows of one that begins at ``fraction``."""
        progress = min(num_written / self.over, 1.0)
        return (1 - progress) * fraction + progress * self.to  # exact at both ends


class OfflineShare:
    """How many units of a batch, rows or slices, are offline ones.

    The count is rounded, and what rounding gave or took is carried to the next batch:

        4 rows at 0.3   1.2   1.4   1.6   0.8     with what was carried
        offline           1     1     2     1     5 of 16, where 0.3 of 16 is 4.8

    So after any number of batches at most half a unit more or less was offline than the fractions
    of these batches add up to, and nothing is drawn by chance.
    """

    def __init__(self, fraction: float, anneal: Anneal | None, min_online: int) -> None:
        self.start = checked_fraction("fraction", fraction)
        if anneal is not None and not callable(anneal):
            raise UsageError(
                "anneal is a function of the first fraction and the rows written, such as "
                f"LinearAnneal(to=0.1, over=100_000), not {anneal!r}."
            )
        self.anneal = anneal
        self.min_online = whole_number("min_online", min_online, 1)
        self.carried = 0.0

    def fraction(self, num_online: int, num_written: int) -> float:
        """Return the fraction of a batch that is drawn now."""
        if num_online < self.min_online:
            return 1.0
        if self.anneal is None:
            return self.start
        return checked_fraction("What anneal returns", self.anneal(self.start, num_written))

    def split(self, units: int, fraction: float) -> tuple[int, float]:
        """Return how many of a batch's units are offline, and what is carried after it."""
        due = units * fraction + self.carried
        # Within the batch, as a rounding error of the sum is not.
        count = max(0, min(units, math.floor(due + 0.5)))
        return count, due - count

    def state(self) -> StateDict:
        """Return what it takes to continue with the same counts, as plain values."""
        return {**self._settings(), "carried": self.carried}

    def plan_restore(self, state: object, what: str) -> Callable[[], None]:
        """Return what continues where ``state`` was taken; what may be refused is refused here."""
        kept = state if isinstance(state, dict) else {}
        carried = kept.get("carried")
        if not isinstance(carried, float) or not abs(carried) <= 0.5:
            raise UsageError(
                f"{what} does not say how many offline rows are carried to the next batch: a number"
                f" from -0.5 to 0.5 is expected, not {carried!r}. Save it again."
            )
        remedy = (
            "Make it with the same; to continue with another fraction, load its online part into "
            "the online one."
        )
        check_settings(kept, self._settings(), what, remedy)
        return partial(setattr, self, "carried", carried)

    def _settings(self) -> StateDict:
        """Return the arguments that draws depend on; of a function only that it is one."""
        anneal: StateDict | str | None = None if self.anneal is None else "a function"
        if isinstance(self.anneal, LinearAnneal):
            anneal = asdict(self.anneal)
        return {"fraction": self.start, "anneal": anneal, "min_online": self.min_online}


def checked_fraction(name: str, value: float) -> float:
    """Return a number from 0 to 1."""
    try:
        is_fraction = not isinstance(value, str | bool) and 0 <= float(value) <= 1
    except (TypeError, ValueError, RuntimeError):  # the last of tensors
        is_fraction = False
    if not is_fraction:
        raise UsageError(f"{name} must be a number from 0 to 1, not {value!r}.")
    return float(value)


def check_settings(kept: Mapping[str, object], ours: StateDict, what: str, remedy: str) -> None:
    """Check that a state was taken with the settings that draws depend on."""
    if odd := [name for name in ours if kept.get(name) != ours[name]]:
        theirs, own = (
            ", ".join(f"{name}={settings.get(name)!r}" for name in odd) for settings in (kept, ours)
        )
        raise UsageError(f"{what} was taken with {theirs}; this one has {own}. {remedy}")
