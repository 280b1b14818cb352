"""``traj``: entries of trajectories, reduced to numbers, and compared to make conditions.

traj.reward            TrajectoryField   an entry of the rows
traj.reward.sum()      Number            one number of each trajectory
traj.reward > 3        RowComparison     true or false of each row
.any(), .all(), > 3    TrajectoryPredicate
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NoReturn

import numpy as np
import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import NestedKey, key_of
from datasets_cli.replay.queries.conditions import (
    Length,
    Operation,
    Operator,
    Reduced,
    RowsCompared,
    Term,
    TermValues,
    TrajectoryPredicate,
    nested,
    predicate_of,
)
from datasets_cli.replay.trajectories.table import Reduction
from datasets_cli.schema.columns import Key


def _comparison(sign: Operator) -> Callable[[Expression, object], Any]:
    return lambda self, other: self._compared(sign, other)


class Expression:
    """What is not a condition yet."""

    __hash__ = None  # type: ignore[assignment]  # == makes a condition
    __array_ufunc__ = None  # so that numpy's numbers leave 3 < traj.length to it
    hint: ClassVar[str]

    @property
    def unfinished(self) -> UsageError:
        """The error of one in a condition's place."""
        return UsageError(f"{self!r} is not a condition on trajectories: {self.hint}")

    def __bool__(self) -> NoReturn:
        raise self.unfinished

    def __and__(self, other: object) -> NoReturn:
        raise self.unfinished

    def __invert__(self) -> NoReturn:
        raise self.unfinished

    __or__ = __and__

    def _compared(self, sign: Operator, other: object) -> Any:
        """Return the comparison."""
        raise self.unfinished

    __lt__ = _comparison("<")
    __le__ = _comparison("<=")
    __gt__ = _comparison(">")
    __ge__ = _comparison(">=")
    __eq__ = _comparison("==")
    __ne__ = _comparison("!=")


@dataclass(frozen=True, eq=False, repr=False)
class Number(Expression):
    """One number of each trajectory."""

    hint: ClassVar[str] = "compare it with a number, such as traj.length > 50."
    name: str
    node: Term

    def _compared(self, sign: Operator, other: object) -> TrajectoryPredicate:
        value = other.node if isinstance(other, Number) else values_of(other)
        if isinstance(value, np.ndarray):
            raise UsageError(
                f"{self.name} is one number of a trajectory; it cannot be compared with "
                f"{list(value.shape)}."
            )
        return predicate_of(Operation(sign, (self.node, value)), f"({self!r} {sign} {other!r})")

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False, repr=False)
class TrajectoryField(Expression):
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
        return predicate_of(Reduced(self.key, "any"), f"{self!r}.any()")

    def all(self) -> TrajectoryPredicate:
        """Return whether all are true, or not 0."""
        return predicate_of(Reduced(self.key, "all"), f"{self!r}.all()")

    def _reduced(self, reduction: Reduction) -> Number:
        return Number(f"{self!r}.{reduction}()", Reduced(self.key, reduction))

    def _compared(self, sign: Operator, other: object) -> RowComparison:
        if isinstance(other, Expression):
            raise UsageError(
                f"Rows of {self!r} are compared with numbers, not with {other!r}. Give query() a "
                "function of a trajectory, such as lambda found: (found.reward > found.cost).any()."
            )
        return RowComparison(self, sign, values_of(other))

    def __repr__(self) -> str:
        name = self.key[0]
        is_attribute = name.isidentifier() and not name.startswith("_")
        is_attribute &= len(self.key) == 1 and name not in ("length", "total_reward")
        return f"traj.{name}" if is_attribute else f"traj[{nested(self.key)!r}]"


@dataclass(frozen=True, eq=False, repr=False)
class RowComparison(Expression):
    """What is true or false of each row, until ``any()`` or ``all()`` makes a condition of it."""

    hint: ClassVar[str] = "it compares each row. End it with .any() or .all()."
    field: TrajectoryField
    sign: Operator
    other: TermValues

    def any(self) -> TrajectoryPredicate:
        """Return whether it is true of any number in any row."""
        return self._condition("any")

    def all(self) -> TrajectoryPredicate:
        """Return whether it is true of all numbers in all rows."""
        return self._condition("all")

    def _condition(self, reduction: Literal["any", "all"]) -> TrajectoryPredicate:
        tree = RowsCompared(self.field.key, self.sign, self.other, reduction)
        return predicate_of(tree, f"{self!r}.{reduction}()")

    def __repr__(self) -> str:
        return f"({self.field!r} {self.sign} {self.other!r})"


def values_of(other: object) -> TermValues:
    """Return what a user compares with: a number, or an array of several."""
    if isinstance(other, torch.Tensor):
        other = other.detach().cpu().numpy()
    if isinstance(other, np.ndarray | np.generic) and other.dtype.kind in "biuf":
        # One number takes the precision of the rows, as it does in torch.
        return other.item() if other.size == 1 else np.array(other)
    if isinstance(other, bool | int | float):
        return other
    raise UsageError(
        f"Trajectories are compared with numbers, not with {type(other).__name__} "
        f"{reprlib.repr(other)}. Give query() a function of a trajectory for anything else."
    )


class TrajectoryFields:
    """Where conditions begin: ``(traj.reward.sum() > 100) & (traj.length >= 50)``."""

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

    def __getattr__(self, name: str) -> TrajectoryField:
        if name.startswith("_"):  # as copying, pickling, help() and notebooks ask
            raise AttributeError(f"traj has no attribute {name!r}; traj[{name!r}] is an entry.")
        return TrajectoryField((name,))

    def __getitem__(self, key: NestedKey) -> TrajectoryField:
        names = key_of(key) if isinstance(key, str | tuple) else ()
        if not names or not all(isinstance(name, str) for name in names):
            raise UsageError(f"traj[...] takes the name of an entry, or several, not {key!r}.")
        return TrajectoryField(names)

    def __repr__(self) -> str:
        return "traj"


traj = TrajectoryFields()
