"""Conditions on trajectories, joined by ``&``, ``|`` and ``~``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NoReturn

from datasets_cli.errors import UsageError
from datasets_cli.replay.queries.trajectory import Trajectory
from datasets_cli.replay.queries.tree import (
    EntryKeys,
    FunctionTerm,
    Operation,
    Term,
    holds,
    keys_of,
)


class TrajectoryPredicate:
    """A condition on trajectories, such as ``(traj.reward.sum() > 100) & (traj.length >= 50)``.

    Two are joined by ``&`` and ``|``, and ``~`` is the opposite. It takes a trajectory and
    says whether it holds, and it pickles.

    Args:
        fn: a function of a trajectory, which is then read whole; ``traj`` makes conditions that
            read no more than they need.
        description: what ``repr`` shows.
        keys: the entries that ``fn`` reads, for ``required_keys``.

    Raises:
        UsageError: ``fn`` is no function.
    """

    def __init__(
        self,
        fn: Callable[[Trajectory], Any],
        description: str = "predicate",
        keys: EntryKeys | None = None,
    ) -> None:
        if not callable(fn):
            raise UsageError(f"A condition is made of a function of a trajectory, not of {fn!r}.")
        self._tree: Term = FunctionTerm(fn, keys)
        self._description = description

    @property
    def tree(self) -> Term:
        """What it is made of."""
        return self._tree

    def __call__(self, trajectory: Trajectory) -> bool:
        return holds(self._tree, trajectory)

    def required_keys(self) -> EntryKeys | None:
        """Return the entries that it reads; None where a function says nothing of them."""
        return keys_of(self._tree)

    def __and__(self, other: TrajectoryPredicate) -> TrajectoryPredicate:
        return self._joined("&", other)

    def __or__(self, other: TrajectoryPredicate) -> TrajectoryPredicate:
        return self._joined("|", other)

    def __invert__(self) -> TrajectoryPredicate:
        return predicate_of(Operation("~", (self._tree,)), f"~{self._description}")

    def _joined(self, operator: Literal["&", "|"], other: Any) -> TrajectoryPredicate:
        if not isinstance(other, TrajectoryPredicate):
            raise UsageError(
                f"{self._description} {operator} {other!r}: expected a condition on trajectories "
                "on both sides. A comparison of rows becomes one by .any() or .all(), and a "
                "function by TrajectoryPredicate(fn)."
            )
        description = f"({self._description} {operator} {other._description})"
        return predicate_of(Operation(operator, (self._tree, other._tree)), description)

    def __bool__(self) -> NoReturn:
        # Python asks for this in "a and b", "not a" and "1 < a < 2", and would drop one of them.
        raise UsageError(
            f"{self._description} is true or false of a trajectory, and not by itself. Join "
            "conditions by & | ~ in place of and, or, not, each in brackets, and write "
            "(50 <= traj.length) & (traj.length < 60) in place of 50 <= traj.length < 60."
        )

    def __str__(self) -> str:
        return self._description

    def __repr__(self) -> str:
        return f"TrajectoryPredicate({self._description})"


def predicate_of(tree: Term, description: str) -> TrajectoryPredicate:
    """Return a condition that is made of a tree."""
    predicate = TrajectoryPredicate.__new__(TrajectoryPredicate)
    predicate._tree, predicate._description = tree, description
    return predicate
