"""Conditions on trajectories as text: ``return > 300 and length >= 100``.

Python's parser reads them, and only what is named here becomes a tree: whatever else stands in a
configuration file is refused, and nothing in it is run.
"""

from __future__ import annotations

import ast
import itertools
from typing import cast

import numpy as np

from datasets_cli.errors import NoRewards, UsageError
from datasets_cli.replay.queries.conditions import Operator, Reduced, TermValues, apply
from datasets_cli.replay.queries.syntax import RETURN, parse_condition, shown
from datasets_cli.replay.trajectories.table import REDUCTIONS, Reduction, Trajectories

_SIGNS: dict[type[ast.AST], Operator] = {
    ast.And: "&",
    ast.Or: "|",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
}


class TextCondition:
    """A condition as text on the trajectories of a table."""

    # It has columns of the table, reductions of leaves such as `max(next.reward)`, numbers and
    # arithmetic, comparisons, which may be chained, `and`, `or`, `not`, `true`, `false`.

    def __init__(self, where: str, table: Trajectories) -> None:
        self._where, self._table = where, table

    def mask(self) -> np.ndarray:
        """Return which trajectories it holds for, bool ``[K]``."""
        try:
            flags = self._flags(parse_condition(self._where))
        except UsageError:
            raise
        except (ValueError, OverflowError, RecursionError, MemoryError) as error:
            raise self._refused(f"Condition {shown(self._where)!r} cannot be read") from error
        return np.broadcast_to(flags, len(self._table))

    def _values(self, node: ast.expr) -> TermValues:
        """Return the value of each trajectory, ``[K]``; a Python value where it is constant."""
        values: TermValues
        match node:
            case ast.BoolOp():
                values = apply(_SIGNS[type(node.op)], [*map(self._flags, node.values)])
            case ast.UnaryOp(op=ast.Not()):
                values = apply("~", [self._flags(node.operand)])
            case ast.UnaryOp(op=ast.USub()):
                number = self._numbers(node.operand)
                values = -number if isinstance(number, int | float) else apply("*", [-1, number])
            case ast.BinOp() if type(node.op) in _SIGNS:
                operands = self._numbers(node.left), self._numbers(node.right)
                values = apply(_SIGNS[type(node.op)], [*operands])
            case ast.Compare() if all(type(sign) in _SIGNS for sign in node.ops):
                values = self._compared(node)
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                values = value
            case ast.Name(id="true" | "false" as name):
                values = name == "true"
            case ast.Name():
                values = self._column(node)
            case ast.Call(func=ast.Name(id=name), args=[leaf], keywords=[]) if name in REDUCTIONS:
                values = self._reduced(node, leaf, cast(Reduction, name))
            case _:
                raise self._wrong(node, "is not part of the language of conditions")
        return values

    def _compared(self, node: ast.Compare) -> TermValues:
        """Return what comparisons give, those of a chain joined by and."""
        operands = [*map(self._values, (node.left, *node.comparators))]
        if len({*map(_is_flag, operands)}) > 1:
            raise self._wrong(node, "compares a number with true or false")
        signs = (_SIGNS[type(sign)] for sign in node.ops)
        pairs = zip(signs, itertools.pairwise(operands), strict=True)
        compared = [apply(sign, [*pair]) for sign, pair in pairs]
        return compared[0] if len(compared) == 1 else apply("&", compared)

    def _column(self, node: ast.Name) -> TermValues:
        try:
            column = self._table[node.id.replace(RETURN, "return")]
        except NoRewards:
            raise
        except KeyError as error:
            raise self._wrong(node, f"cannot be read. {error.args[0]}") from error
        if column.ndim > 1:
            raise self._wrong(
                node,
                f"is {list(column.shape[1:])} numbers of a trajectory, of which a condition takes "
                "one. Give a function of the table",
            )
        return column

    def _reduced(self, node: ast.Call, leaf: ast.expr, reduction: Reduction) -> TermValues:
        try:
            return Reduced(tuple(self._show(leaf).split(".")), reduction).values(self._table)
        except NoRewards:
            raise
        except UsageError as error:
            raise self._wrong(node, f"cannot be read. {error}") from error

    def _flags(self, node: ast.expr) -> TermValues:
        """Return what is true or false of each trajectory."""
        if not _is_flag(values := self._values(node)):
            raise self._wrong(node, "is a number, not true or false")
        return values

    def _numbers(self, node: ast.expr) -> TermValues:
        """Return a number of each trajectory."""
        if _is_flag(values := self._values(node)):
            raise self._wrong(node, "is true or false, not a number")
        return values

    def _show(self, node: ast.expr) -> str:
        return ast.unparse(node).replace(RETURN, "return")

    def _wrong(self, node: ast.expr, why: str) -> UsageError:
        return self._refused(f"Condition {shown(self._where)!r}: {shown(self._show(node))} {why}")

    def _refused(self, why: str) -> UsageError:
        return UsageError(
            f"{why.removesuffix('.')}. Expected something such as 'return > 300 and length >= "
            f"100', of numbers, the columns {', '.join(self._table)}, and reductions such as "
            f"max(action): {', '.join(REDUCTIONS)}."
        )


def _is_flag(values: TermValues) -> bool:
    return np.asarray(values).dtype == np.bool_
