"""Conditions on trajectories: trees of terms, which ``traj`` and conditions as text both make."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Literal, NoReturn, Protocol

import numpy as np
import torch

from datasets_cli.errors import Unsupported, UsageError, WrongRows
from datasets_cli.replay.arguments import NestedKey
from datasets_cli.replay.queries.trajectory import (
    Trajectory,
    TrajectoryLeaves,
    find_leaf,
    leaves_of,
    whole_trajectory,
)
from datasets_cli.replay.trajectories.table import (
    UFUNCS,
    Reduction,
    reduce_blocks,
    reduce_entries,
)
from datasets_cli.schema.columns import Key, show_key

EntryKeys = frozenset[NestedKey]
ConstantValue = bool | int | float
TermValues = ConstantValue | np.ndarray
Operator = Literal["<", "<=", ">", ">=", "==", "!=", "+", "-", "*", "/", "&", "|", "~"]

OPERATORS: dict[Operator, Callable[..., TermValues]] = {
    # A Python number takes the type of the array that it is compared with, as in torch.
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    # In float64, so that narrow whole numbers do not wrap around.
    "+": partial(np.add, dtype=np.float64),
    "-": partial(np.subtract, dtype=np.float64),
    "*": partial(np.multiply, dtype=np.float64),
    "/": partial(np.divide, dtype=np.float64),
    "&": np.logical_and,
    "|": np.logical_or,
    "~": np.logical_not,
}


MOST_NESTED = 100
"""Operations in one another: each is a call of Python's, which have a limit."""


class Term(Protocol):
    """A number or a truth value of each trajectory."""

    def values(self, leaves: TrajectoryLeaves) -> TermValues:
        """Return the value of each trajectory, ``[K]``; a Python value where it is constant."""


@dataclass(frozen=True)
class Length:
    """The number of rows of each trajectory."""

    def values(self, leaves: TrajectoryLeaves) -> np.ndarray:
        """Return the lengths, int64 ``[K]``."""
        return leaves.lengths


@dataclass(frozen=True)
class Reduced:
    """All numbers of an entry in all rows of each trajectory, reduced to one."""

    key: Key
    reduction: Reduction

    def values(self, leaves: TrajectoryLeaves) -> np.ndarray:
        """Return the reductions, ``[K]``."""
        key = find_leaf(leaves, self.key)
        reduced = leaves.reduce(key, self.reduction)
        shape = reduced.shape[1:]
        if math.prod(shape) == 1:
            return reduced.reshape(len(reduced))
        if self.reduction not in UFUNCS or not math.prod(shape):
            raise WrongRows(
                f"{show_key(key)} is {list(shape)} numbers a row; {self.reduction}() needs one.",
                key=key,
                expected="one number a row",
                found=list(shape),
                advice="Give query() a function of a trajectory, such as "
                "lambda found: found.observation[0, 2] > 1.",
            )
        return reduce_entries(self.reduction, reduced)


@dataclass(frozen=True, eq=False)
class RowsCompared:
    """A comparison of the numbers of each row, true for any or for all rows of a trajectory."""

    key: Key
    sign: Operator
    other: TermValues
    reduction: Literal["any", "all"]

    def values(self, leaves: TrajectoryLeaves) -> np.ndarray:
        """Return whether the comparison is true, bool ``[K]``."""
        key = find_leaf(leaves, self.key)
        reduced = np.empty(len(leaves.lengths), np.bool_)
        offsets = np.concatenate(([0], leaves.lengths.cumsum()))
        blocks = (self._rows(key, block) for block in leaves.blocks(key))
        reduce_blocks(self.reduction, blocks, offsets, reduced)
        return reduced

    def _rows(self, key: Key, block: np.ndarray) -> np.ndarray:
        """Return whether each row of a block ``[n, ...]`` satisfies it, bool ``[n]``."""
        try:
            np.broadcast_to(self.other, block.shape[1:])
        except ValueError as error:
            raise WrongRows(
                f"{show_key(key)} is {list(block.shape[1:])} numbers a row, which cannot be "
                f"compared with {list(np.shape(self.other))}.",
                key=key,
                expected=list(block.shape[1:]),
                found=list(np.shape(self.other)),
            ) from error
        return reduce_entries(self.reduction, np.asarray(apply(self.sign, [block, self.other])))


@dataclass(frozen=True)
class FunctionTerm:
    """A user's function of a trajectory."""

    function: Callable[[Trajectory], object]
    keys: EntryKeys | None = None

    def values(self, leaves: TrajectoryLeaves) -> np.ndarray:
        """Return the result of the function for a single trajectory, bool ``[1]``."""
        trajectory = whole_trajectory(leaves)
        if trajectory is None:
            raise Unsupported(
                f"{self.function!r} is a function of a trajectory, which a table does not have.",
                found=self.function,
                advice="Give filter() a function of the table, or a condition of traj; query() "
                "takes both.",
            )
        answer = self.function(trajectory)
        size = math.prod(answer.shape) if isinstance(answer, np.ndarray | torch.Tensor) else 1
        if answer is None or size != 1:
            shown = "None" if answer is None else f"{type(answer).__name__} of {size} values"
            raise UsageError(
                f"{self.function!r} must return whether to select a trajectory: expected True or "
                f"False, found {shown}.",
                expected="True or False",
                found=shown,
            )
        return np.array([bool(answer)])


@dataclass(frozen=True)
class Operation:
    """An operator between the values of other terms and constants."""

    operator: Operator
    operands: tuple[Term | ConstantValue, ...]
    depth: int = field(init=False)

    def __post_init__(self) -> None:
        below = [each.depth for each in self.operands if isinstance(each, Operation)]
        object.__setattr__(self, "depth", 1 + max(below, default=0))
        if self.depth > MOST_NESTED:
            raise UsageError(
                f"A condition has at most {MOST_NESTED} others in one another, such as ~(a & ~b), "
                "and this one has more. Give query() a function of a trajectory, or filter() one "
                "of the table."
            )

    def values(self, leaves: TrajectoryLeaves) -> TermValues:
        """Return the result for each trajectory, ``[K]``."""
        values: list[TermValues] = []
        is_joined = self.operator in ("&", "|") and whole_trajectory(leaves) is not None
        for operand in self.operands:
            values.append(operand if isinstance(operand, int | float) else operand.values(leaves))
            # For a single trajectory, stop at the first operand that decides.
            if is_joined and bool(values[-1]) is (self.operator == "|"):
                return values[-1]
        return apply(self.operator, values)


def apply(sign: Operator, values: list[TermValues]) -> TermValues:
    """Return the result of an operator, a Python value where all operands are."""
    function = OPERATORS[sign]
    with np.errstate(all="ignore"):  # NaN is a value; overflow gives infinity
        result = reduce(function, values) if len(values) > 1 else function(*values)
    return result.item() if isinstance(result, np.generic) else result


def keys_of(tree: Term | ConstantValue) -> EntryKeys | None:
    """Return the entries that a tree reads; None if a function does not declare them."""
    if isinstance(tree, Operation):
        keys = [*map(keys_of, tree.operands)]
        return None if None in keys else frozenset().union(*filter(None, keys))
    if isinstance(tree, FunctionTerm):
        return tree.keys
    return frozenset({nested(tree.key)} if isinstance(tree, Reduced | RowsCompared) else ())


def reads_trajectories(tree: Term | ConstantValue) -> bool:
    """Return whether a tree has a function, which sees each trajectory whole."""
    if isinstance(tree, Operation):
        return any(map(reads_trajectories, tree.operands))
    return isinstance(tree, FunctionTerm)


def holds(tree: Term, trajectory: Trajectory) -> bool:
    """Return whether a condition is true of one trajectory."""
    return bool(np.all(tree.values(leaves_of(trajectory))))


def nested(key: Key) -> NestedKey:
    """Return a key as TorchRL writes it: a name, or a tuple of several."""
    return key[0] if len(key) == 1 else key


class TrajectoryPredicate:
    """A condition on trajectories, such as ``(traj.reward.sum() > 100) & (traj.length >= 50)``.

    ``&`` and ``|`` join two conditions, and ``~`` negates one. Called with a trajectory, it returns
    whether the condition holds. It can be pickled.

    Args:
        fn: a function of a trajectory, which is then read whole; conditions of ``traj`` read only
            the entries that they need.
        description: the text that ``repr`` shows.
        keys: the entries that ``fn`` reads, for ``required_keys``.

    Raises:
        UsageError: ``fn`` is not a function.
    """

    def __init__(
        self,
        fn: Callable[[Trajectory], object],
        description: str = "predicate",
        keys: EntryKeys | None = None,
    ) -> None:
        if not callable(fn):
            raise UsageError(
                f"A condition needs a function of a trajectory, not of {fn!r}.",
                argument="fn",
                expected="a function of a trajectory",
                found=fn,
            )
        self._tree: Term = FunctionTerm(fn, keys)
        self._description = description

    @property
    def tree(self) -> Term:
        """The tree of terms of the condition."""
        return self._tree

    def __call__(self, trajectory: Trajectory) -> bool:
        return holds(self._tree, trajectory)

    def required_keys(self) -> EntryKeys | None:
        """Return the entries that it reads; None if a function does not declare them."""
        return keys_of(self._tree)

    def __and__(self, other: TrajectoryPredicate) -> TrajectoryPredicate:
        return self._joined("&", other)

    def __or__(self, other: TrajectoryPredicate) -> TrajectoryPredicate:
        return self._joined("|", other)

    def __invert__(self) -> TrajectoryPredicate:
        return predicate_of(Operation("~", (self._tree,)), f"~{self._description}")

    def _joined(self, operator: Literal["&", "|"], other: object) -> TrajectoryPredicate:
        if not isinstance(other, TrajectoryPredicate):
            raise UsageError(
                f"{self._description} {operator} {other!r}: expected a condition on trajectories "
                "on both sides. A comparison of rows becomes one by .any() or .all(), and a "
                "function by TrajectoryPredicate(fn)."
            )
        description = f"({self._description} {operator} {other._description})"
        first = self._tree
        # A chain, a & b & c, is one operation, however long it is.
        if isinstance(first, Operation) and first.operator == operator:
            return predicate_of(Operation(operator, (*first.operands, other._tree)), description)
        return predicate_of(Operation(operator, (first, other._tree)), description)

    def __bool__(self) -> NoReturn:
        # Python asks for this in "a and b", "not a" and "1 < a < 2", and would drop one of them.
        raise UsageError(
            f"{self._description} is true or false only of a trajectory. Join conditions by "
            "& | ~ in place of and, or, not, each in brackets, and write "
            "(50 <= traj.length) & (traj.length < 60) in place of 50 <= traj.length < 60."
        )

    def __str__(self) -> str:
        return self._description

    def __repr__(self) -> str:
        return f"TrajectoryPredicate({self._description})"


def predicate_of(tree: Term, description: str) -> TrajectoryPredicate:
    """Return the condition of a tree."""
    predicate = TrajectoryPredicate.__new__(TrajectoryPredicate)
    predicate._tree, predicate._description = tree, description
    return predicate
