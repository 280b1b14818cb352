"""Conditions on trajectories as text: ``return > 300 and length >= 100``.

Python's parser reads them, and only what is named here is worked out: whatever else stands in a
configuration file is refused, and nothing in it is run.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from datasets_cli.errors import UsageError
from datasets_cli.replay.episodes.reductions import REDUCTIONS
from datasets_cli.replay.episodes.table import Trajectories

MAX_LENGTH = 10_000
"""Characters of a condition."""

RETURN = "return_"  # as Python's parser takes it: return is one of its own words

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.And: operator.and_,
    ast.Or: operator.or_,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
    ast.USub: np.negative,
}
_FLAGS = {"true": True, "false": False}


class Condition:
    """A condition on the trajectories of a table."""

    # It has columns of the table, reductions of leaves such as `max(next.reward)`, numbers and
    # arithmetic, comparisons, which may be chained, `and`, `or`, `not`, `true`, `false`.

    def __init__(self, where: str, table: Trajectories) -> None:
        self._where, self._table = where, table

    def mask(self) -> np.ndarray:
        """Return which trajectories it holds for, bool ``[K]``."""
        if len(self._where) > MAX_LENGTH:
            raise self._refused(f"it has more than {MAX_LENGTH:,} characters")
        source = re.sub(r"\breturn\b", RETURN, " ".join(self._where.split()))  # of several lines
        try:
            tree = ast.parse(source, mode="eval")
            with np.errstate(all="ignore"):  # NaN is a value, for which no comparison holds
                found = self._flags(tree.body)
        except UsageError:
            raise
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise self._refused("it cannot be read") from error
        return np.broadcast_to(found, (len(self._table),)).copy()

    def _flags(self, node: ast.expr) -> Any:
        """Return what is true or false of each trajectory."""
        found = self._value(node)
        if np.asarray(found).dtype != np.bool_:
            raise self._refused(f"{self._show(node)} is a number, not something true or false")
        return found

    def _numbers(self, node: ast.expr) -> Any:
        """Return what is a number of each trajectory."""
        found = self._value(node)
        if np.asarray(found).dtype == np.bool_:
            raise self._refused(f"{self._show(node)} is true or false, not a number")
        return found

    def _value(self, node: ast.expr) -> Any:
        kinds: dict[type[ast.expr], Callable[[Any], Any]] = {
            ast.BoolOp: self._joined,
            ast.UnaryOp: self._negated,
            ast.BinOp: self._calculated,
            ast.Compare: self._compared,
            ast.Constant: self._constant,
            ast.Name: self._column,
            ast.Call: self._reduced,
        }
        if type(node) not in kinds:
            raise self._unknown(node)
        return kinds[type(node)](node)

    def _joined(self, node: ast.BoolOp) -> Any:
        return reduce(_OPERATORS[type(node.op)], map(self._flags, node.values))

    def _negated(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.op, ast.Not):
            return np.logical_not(self._flags(node.operand))
        return self._operator(node, node.op)(self._numbers(node.operand))

    def _calculated(self, node: ast.BinOp) -> Any:
        return self._operator(node, node.op)(self._numbers(node.left), self._numbers(node.right))

    def _compared(self, node: ast.Compare) -> Any:
        values = [*map(self._value, (node.left, *node.comparators))]
        kinds = {np.asarray(value).dtype == np.bool_ for value in values}
        if len(kinds) > 1:
            raise self._refused(f"{self._show(node)} compares a number with true or false")
        pairs = zip(node.ops, values, values[1:], strict=False)
        return reduce(operator.and_, (self._operator(node, op)(one, two) for op, one, two in pairs))

    def _constant(self, node: ast.Constant) -> Any:
        if not isinstance(node.value, int | float) or isinstance(node.value, bool):
            raise self._unknown(node)
        return np.float64(node.value)

    def _column(self, node: ast.Name) -> Any:
        name = self._show(node)
        if name in _FLAGS:
            return np.bool_(_FLAGS[name])
        return self._one_number(name, lambda: self._table[name])

    def _reduced(self, node: ast.Call) -> Any:
        name: Any = self._show(node.func)
        if name not in REDUCTIONS or len(node.args) != 1 or node.keywords:
            raise self._unknown(node)
        key = tuple(self._show(node.args[0]).split("."))
        return self._one_number(self._show(node), lambda: self._table.reduce(key, name))

    def _one_number(self, name: str, column: Callable[[], np.ndarray]) -> np.ndarray:
        """Return a column of the table that has one number for each trajectory."""
        try:
            values = column()
        except KeyError as error:
            raise self._refused(str(error.args[0])) from error
        if values.ndim > 1:
            raise self._refused(
                f"{name} is {list(values.shape[1:])} numbers of a trajectory, of which a condition "
                "takes one; give a function of the table instead"
            )
        return values

    def _operator(self, node: ast.expr, op: ast.AST) -> Callable[..., Any]:
        if type(op) not in _OPERATORS:
            raise self._unknown(node)
        return _OPERATORS[type(op)]

    def _unknown(self, node: ast.expr) -> UsageError:
        return self._refused(f"{self._show(node)} is nothing that a condition has")

    def _show(self, node: ast.expr) -> str:
        return ast.unparse(node).replace(RETURN, "return")

    def _refused(self, why: str) -> UsageError:
        shown = self._where if len(self._where) <= 200 else f"{self._where[:200]}..."
        return UsageError(
            f"{shown!r} is no condition on trajectories: {why.removesuffix('.')}. Expected "
            "something such as 'return > 300 and length >= 100', of numbers, the columns "
            f"{', '.join(self._table.keys())}, and reductions such as max(action): "
            f"{', '.join(REDUCTIONS)}."
        )
