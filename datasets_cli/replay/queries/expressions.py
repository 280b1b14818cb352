"""``traj``: entries of trajectories, reduced to numbers, and compared to make conditions.

traj.reward            Field           an entry of the rows
traj.reward.sum()      Number          one number of each trajectory
traj.reward > 3        RowComparison   true or false of each row
.any(), .all(), > 3    TrajectoryPredicate
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NoReturn

import numpy as np

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import NestedKey, key_of
from datasets_cli.replay.episodes.reductions import Reduction
from datasets_cli.replay.queries.comparisons import (
    Compared,
    Length,
    Measure,
    Reduced,
    RowsCompared,
    Sign,
    Values,
    nested,
    values_of,
)
from datasets_cli.replay.queries.predicate import TrajectoryPredicate, predicate_of
from datasets_cli.store.schema.columns import Key


class Expression:
    """What is no condition yet."""

    __hash__ = None  # type: ignore[assignment]  # == makes a condition
    __array_ufunc__ = None  # so that numpy's numbers leave 3 < traj.length to it
    hint: ClassVar[str]

    @property
    def unfinished(self) -> UsageError:
        """The error of one in a condition's place."""
        return UsageError(f"{self!r} is no condition on trajectories: {self.hint}")

    def __bool__(self) -> NoReturn:
        raise self.unfinished

    def __and__(self, other: Any) -> NoReturn:
        raise self.unfinished

    def __invert__(self) -> NoReturn:
        raise self.unfinished

    __or__ = __and__


class Comparable(Expression):
    """What can be compared."""

    @abstractmethod
    def _compared(self, sign: Sign, other: Any) -> Any:
        """Return the comparison."""

    def __lt__(self, other: Any) -> Any:
        return self._compared("<", other)

    def __le__(self, other: Any) -> Any:
        return self._compared("<=", other)

    def __gt__(self, other: Any) -> Any:
        return self._compared(">", other)

    def __ge__(self, other: Any) -> Any:
        return self._compared(">=", other)

    def __eq__(self, other: object) -> Any:
        return self._compared("==", other)

    def __ne__(self, other: object) -> Any:
        return self._compared("!=", other)

    __hash__ = None


@dataclass(frozen=True, eq=False, repr=False)
class Number(Comparable):
    """One number of each trajectory."""

    hint: ClassVar[str] = "compare it with a number, such as traj.length > 50."
    name: str
    measure: Measure

    def _compared(self, sign: Sign, other: Any) -> TrajectoryPredicate:
        found = other.measure if isinstance(other, Number) else values_of(other)
        if isinstance(found, np.ndarray):
            raise UsageError(
                f"{self.name} is one number of a trajectory; it cannot be compared with "
                f"{list(found.shape)}."
            )
        return predicate_of(Compared(self.measure, sign, found), f"({self!r} {sign} {other!r})")

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False, repr=False)
class Field(Comparable):
    """An entry of the rows: that of the root, or else that below ``"next"``."""

    # Reductions are of all numbers in all rows; sums and means are worked out in float64. The first
    # and the last are of entries that are one number a row.

    hint: ClassVar[str] = (
        "reduce it and compare the number, such as traj.reward.sum() > 100, or compare its rows, "
        "such as (traj.reward > 3).any()."
    )
    key: Key

    def sum(self) -> Number:
        """Return the sum."""
        return self._reduced("sum")

    def mean(self) -> Number:
        """Return the mean."""
        return self._reduced("mean")

    def max(self) -> Number:
        """Return the largest; NaN where one is NaN."""
        return self._reduced("max")

    def min(self) -> Number:
        """Return the smallest; NaN where one is NaN."""
        return self._reduced("min")

    def first(self) -> Number:
        """Return that of the first row."""
        return self._reduced("first")

    def last(self) -> Number:
        """Return that of the last row."""
        return self._reduced("last")

    def any(self) -> TrajectoryPredicate:
        """Return whether any is true, or not 0."""
        return self._is_true("any")

    def all(self) -> TrajectoryPredicate:
        """Return whether all are true, or not 0."""
        return self._is_true("all")

    def _reduced(self, reduction: Reduction) -> Number:
        return Number(f"{self!r}.{reduction}()", Reduced(self.key, reduction))

    def _is_true(self, reduction: Literal["any", "all"]) -> TrajectoryPredicate:
        number = self._reduced(reduction)
        return predicate_of(Compared(number.measure, "==", True), number.name)

    def _compared(self, sign: Sign, other: Any) -> RowComparison:
        if isinstance(other, Expression):
            raise UsageError(
                f"Rows of {self!r} are compared with numbers, not with {other!r}. Give query() a "
                "function of a trajectory, such as lambda found: (found.reward > found.cost).any()."
            )
        return RowComparison(self, sign, values_of(other))

    def __repr__(self) -> str:
        is_plain = len(self.key) == 1 and self.key[0].isidentifier()
        is_plain &= not self.key[0].startswith("_") and self.key[0] not in (
            "length",
            "total_reward",
        )
        return f"traj.{self.key[0]}" if is_plain else f"traj[{nested(self.key)!r}]"


@dataclass(frozen=True, eq=False, repr=False)
class RowComparison(Expression):
    """What is true or false of each row, until ``any()`` or ``all()`` makes a condition of it."""

    hint: ClassVar[str] = "it compares each row. End it with .any() or .all()."
    field: Field
    sign: Sign
    other: Values

    def any(self) -> TrajectoryPredicate:
        """Return whether it is true of any number in any row."""
        return self._condition("any")

    def all(self) -> TrajectoryPredicate:
        """Return whether it is true of all numbers in all rows."""
        return self._condition("all")

    def _condition(self, reduction: Literal["any", "all"]) -> TrajectoryPredicate:
        criterion = RowsCompared(self.field.key, self.sign, self.other, reduction)
        return predicate_of(criterion, f"{self!r}.{reduction}()")

    def __repr__(self) -> str:
        return f"({self.field!r} {self.sign} {self.other!r})"


class TrajectoryFields:
    """Conditions on trajectories begin here: ``(traj.reward.sum() > 100) & (traj.length >=
    50)``.
    """

    # `traj.reward` is the entry `reward` of the rows, at the root or else below `"next"`;
    # `traj["next", "terminated"]` is exactly that entry. Reduced by `sum()`, `mean()`, `max()`,
    # `min()`, `first()` or `last()` and compared it is a condition; so are `(traj.reward >
    # 3).any()` and `.all()`, and `traj.success.any()` of flags. Conditions are joined by `&`, `|`
    # and `~`.

    @property
    def length(self) -> Number:
        """The number of rows of a trajectory."""
        return Number("traj.length", Length())

    @property
    def total_reward(self) -> Number:
        """The sum of the rewards of a trajectory."""
        return Number("traj.total_reward", Reduced(("reward",), "sum"))

    def __getattr__(self, name: str) -> Field:
        if name.startswith("_"):  # as copying, pickling, help() and notebooks ask
            raise AttributeError(f"traj has no attribute {name!r}; traj[{name!r}] is an entry.")
        return Field((name,))

    def __getitem__(self, key: NestedKey) -> Field:
        names = key_of(key) if isinstance(key, str | tuple) else ()
        if not names or not all(isinstance(name, str) for name in names):
            raise UsageError(f"traj[...] takes the name of an entry, or several, not {key!r}.")
        return Field(names)

    def __repr__(self) -> str:
        return "traj"


traj = TrajectoryFields()
