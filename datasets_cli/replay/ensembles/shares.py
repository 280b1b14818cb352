"""How many rows of a batch come from the offline part: the fraction, and the rest carried on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import StateDict, whole_number

Anneal = Callable[[float, int], float]
"""Takes the fraction at the beginning and the rows written since; returns the fraction now."""


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

    def plan_restore(self, state: Any, what: str) -> Callable[[], None]:
        """Return what continues where ``state`` was taken; what may be refused is refused here."""
        carried = state.get("carried") if isinstance(state, dict) else None
        if not isinstance(carried, float) or not abs(carried) <= 0.5:
            raise UsageError(
                f"{what} does not say how many offline rows are carried to the next batch: a number"
                f" from -0.5 to 0.5 is expected, not {carried!r}. Save it again."
            )
        ours = self._settings()
        if odd := [name for name in ours if state.get(name) != ours[name]]:
            told = ", ".join(f"{name}={state.get(name)!r}" for name in odd)
            found = ", ".join(f"{name}={ours[name]!r}" for name in odd)
            raise UsageError(
                f"{what} was taken with {told}; this OfflineToOnline has {found}. Make it with the "
                "same; to continue with another fraction, load its online part into the online one."
            )
        return partial(setattr, self, "carried", carried)

    def _settings(self) -> StateDict:
        """Return the arguments that draws depend on; of a function only that it is one."""
        anneal: StateDict | str | None = None if self.anneal is None else "a function"
        if isinstance(self.anneal, LinearAnneal):
            anneal = asdict(self.anneal)
        return {"fraction": self.start, "anneal": anneal, "min_online": self.min_online}


def checked_fraction(name: str, value: float) -> float:
    """Return a number from 0 to 1."""
    if isinstance(value, str | bool) or not _is_part(value):
        raise UsageError(f"{name} must be a number from 0 to 1, not {value!r}.")
    return float(value)


def _is_part(value: float) -> bool:
    try:
        return 0 <= float(value) <= 1
    except (TypeError, ValueError, RuntimeError):  # the last of tensors
        return False
