"""``traj``: entries of trajectories, which are reduced to numbers and compared in conditions.

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

from datasets_cli.errors import UsageError, wrong_value
from datasets_cli.replay.arguments import NestedKey, key_of, nested_key
from datasets_cli.replay.queries.conditions import (
    Length,
    Operation,
    Operator,
    Reduced,
    RowsCompared,
    Term,
    TermValues,
    TrajectoryPredicate,
    predicate_of,
)
from datasets_cli.replay.trajectories.trajectory_table import Reduction
from datasets_cli.schema.columns import Key


def _comparison(sign: Operator) -> Callable[[Expression, object], Any]:
    return lambda self, other: self._compared(sign, other)


class Expression:
    """A part of a condition, such as a number or a comparison of rows."""

    __hash__ = None  # type: ignore[assignment]  # == returns a condition
    __array_ufunc__ = None  # so that a number of numpy leaves 3 < traj.length to this class
    advice: ClassVar[str]

    @property
    def not_a_condition(self) -> UsageError:
        """The error of an expression in place of a condition."""
        return UsageError(
            f"{self!r} is not a condition on trajectories.", found=self, advice=self.advice
        )

    def __bool__(self) -> NoReturn:
        raise self.not_a_condition

    def __and__(self, other: object) -> NoReturn:
        raise self.not_a_condition

    def __invert__(self) -> NoReturn:
        raise self.not_a_condition

    __or__ = __and__

    def _compared(self, sign: Operator, other: object) -> Any:
        raise self.not_a_condition

    __lt__ = _comparison("<")
    __le__ = _comparison("<=")
    __gt__ = _comparison(">")
    __ge__ = _comparison(">=")
    __eq__ = _comparison("==")
    __ne__ = _comparison("!=")


@dataclass(frozen=True, eq=False, repr=False)
class Number(Expression):
    """A number for each trajectory."""

    advice: ClassVar[str] = "Compare it with a number, such as traj.length > 50."
    name: str
    node: Term

    def _compared(self, sign: Operator, other: object) -> TrajectoryPredicate:
        value = other.node if isinstance(other, Number) else values_of(other)
        if isinstance(value, np.ndarray):
            raise UsageError(
                f"{self.name} is one number per trajectory; it cannot be compared with an array of "
                f"the shape {list(value.shape)}.",
                expected="one number",
                found=list(value.shape),
                advice="Compare it with one number, or compare the rows, such as "
                "(traj.action > array).any().",
            )
        return predicate_of(Operation(sign, (self.node, value)), f"({self!r} {sign} {other!r})")

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False, repr=False)
class TrajectoryField(Expression):
    """An entry of the rows, at the root or else below ``"next"``.

    A reduction covers all numbers in all rows of a trajectory; sums and means are float64.
    ``first`` and ``last`` need one number per row.
    """

    advice: ClassVar[str] = (
        "Reduce it and compare the number, such as traj.reward.sum() > 100, or compare its rows, "
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
        """Return the maximum, or NaN if a number is NaN."""
        return self._reduced("max")

    def min(self) -> Number:
        """Return the minimum, or NaN if a number is NaN."""
        return self._reduced("min")

    def first(self) -> Number:
        """Return the number of the first row."""
        return self._reduced("first")

    def last(self) -> Number:
        """Return the number of the last row."""
        return self._reduced("last")

    def any(self) -> TrajectoryPredicate:
        """Return whether any value is True or nonzero."""
        return predicate_of(Reduced(self.key, "any"), f"{self!r}.any()")

    def all(self) -> TrajectoryPredicate:
        """Return whether all values are True or nonzero."""
        return predicate_of(Reduced(self.key, "all"), f"{self!r}.all()")

    def _reduced(self, reduction: Reduction) -> Number:
        return Number(f"{self!r}.{reduction}()", Reduced(self.key, reduction))

    def _compared(self, sign: Operator, other: object) -> RowComparison:
        if isinstance(other, Expression):
            raise UsageError(
                f"Rows of {self!r} are compared with numbers, not with {other!r}.",
                expected="numbers",
                found=other,
                advice="Give query() a function of a trajectory, such as lambda found: "
                "(found.reward > found.cost).any().",
            )
        return RowComparison(self, sign, values_of(other))

    def __repr__(self) -> str:
        name = self.key[0]
        is_attribute = name.isidentifier() and not name.startswith("_")
        is_attribute &= len(self.key) == 1 and name not in ("length", "total_reward")
        return f"traj.{name}" if is_attribute else f"traj[{nested_key(self.key)!r}]"


@dataclass(frozen=True, eq=False, repr=False)
class RowComparison(Expression):
    """A comparison of each row; ``any()`` or ``all()`` returns the condition."""

    advice: ClassVar[str] = "It compares each row: end it with .any() or .all()."
    field: TrajectoryField
    sign: Operator
    other: TermValues

    def any(self) -> TrajectoryPredicate:
        """Return whether the comparison is true of any number in any row."""
        return self._condition("any")

    def all(self) -> TrajectoryPredicate:
        """Return whether the comparison is true of all numbers in all rows."""
        return self._condition("all")

    def _condition(self, reduction: Literal["any", "all"]) -> TrajectoryPredicate:
        tree = RowsCompared(self.field.key, self.sign, self.other, reduction)
        return predicate_of(tree, f"{self!r}.{reduction}()")

    def __repr__(self) -> str:
        return f"({self.field!r} {self.sign} {self.other!r})"


def values_of(other: object) -> TermValues:
    """Return the right side of a comparison as a number, or as an array of several."""
    if isinstance(other, torch.Tensor):
        other = other.detach().cpu().numpy()
    if isinstance(other, np.ndarray | np.generic) and other.dtype.kind in "biuf":
        # A single number is compared in the precision of the rows, as in torch.
        return other.item() if other.size == 1 else np.array(other)
    if isinstance(other, bool | int | float):
        return other
    raise UsageError(
        f"Trajectories are compared with numbers, not with {type(other).__name__} "
        f"{reprlib.repr(other)}.",
        expected="a number, or an array of numbers",
        found=other,
        advice="Give query() a function of a trajectory for other comparisons.",
    )


class TrajectoryFields:
    """Entries of trajectories for conditions: ``(traj.reward.sum() > 100) & (traj.length >= 50)``.

    ``traj.reward`` is the entry ``reward`` of the rows, at the root or else below ``"next"``;
    ``traj["next", "terminated"]`` is exactly that entry. A reduction that is compared is a
    condition: ``sum()``, ``mean()``, ``max()``, ``min()``, ``first()``, ``last()``. So are
    ``(traj.reward > 3).any()``, ``.all()``, and ``traj.success.any()`` of flags. ``&``, ``|`` and
    ``~`` join conditions.
    """

    @property
    def length(self) -> Number:
        """The number of rows of a trajectory."""
        return Number("traj.length", Length())

    @property
    def total_reward(self) -> Number:
        """The sum of the rewards of a trajectory."""
        return Number("traj.total_reward", Reduced(("reward",), "sum"))

    def __getattr__(self, name: str) -> TrajectoryField:
        if name.startswith("_"):  # looked up by copy, pickle, help() and notebooks
            raise AttributeError(f"traj has no attribute {name!r}; traj[{name!r}] is an entry.")
        return TrajectoryField((name,))

    def __getitem__(self, key: NestedKey) -> TrajectoryField:
        names = key_of(key) if isinstance(key, str | tuple) else ()
        if not names or not all(isinstance(name, str) for name in names):
            raise wrong_value("key", "a name or a tuple of names", key)
        return TrajectoryField(names)

    def __repr__(self) -> str:
        return "traj"


traj = TrajectoryFields()
