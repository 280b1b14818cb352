"""Conditions on trajectories as text: ``return > 300 and length >= 100``.

Python's parser reads them, and only what is named here becomes a tree: whatever else stands in a
configuration file is refused, and nothing in it is run.
"""

from __future__ import annotations

import ast
import itertools
import re
from typing import cast

import numpy as np

from datasets_cli.errors import UsageError
from datasets_cli.replay.queries.leaves import TableLeaves
from datasets_cli.replay.queries.tree import (
    ARITHMETIC,
    Constant,
    Length,
    Node,
    Operation,
    Operator,
    Reduced,
    TableColumn,
)
from datasets_cli.replay.trajectories.reductions import REDUCTIONS, Reduction
from datasets_cli.replay.trajectories.table import Trajectories

MAX_LENGTH = 10_000
"""Characters of a condition."""

RETURN = "return_"  # as Python's parser takes it: return is one of its own words

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
_NAMES: dict[str, Node] = {"true": Constant(True), "false": Constant(False), "length": Length()}


class TextCondition:
    """A condition as text on the trajectories of a table."""

    # It has columns of the table, reductions of leaves such as `max(next.reward)`, numbers and
    # arithmetic, comparisons, which may be chained, `and`, `or`, `not`, `true`, `false`.

    def __init__(self, where: str, table: Trajectories) -> None:
        self._where, self._table, self._leaves = where, table, TableLeaves(table)

    def mask(self) -> np.ndarray:
        """Return which trajectories it holds for, bool ``[K]``."""
        if len(self._where) > MAX_LENGTH:
            raise self._refused(
                f"Condition too long: {len(self._where):,} characters, at most {MAX_LENGTH:,} "
                "allowed"
            )
        source = re.sub(r"\breturn\b", RETURN, " ".join(self._where.split()))  # of several lines
        try:
            tree = self._flags(ast.parse(source, mode="eval").body)
            return np.broadcast_to(tree.values(self._leaves), len(self._leaves.lengths))
        except UsageError:
            raise
        except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError) as error:
            raise self._refused(f"Condition {_shown(self._where)!r} cannot be read") from error

    def _tree(self, node: ast.expr) -> Node:
        tree: Node
        match node:
            case ast.BoolOp():
                tree = Operation(_SIGNS[type(node.op)], tuple(map(self._flags, node.values)))
            case ast.UnaryOp(op=ast.Not()):
                tree = Operation("~", (self._flags(node.operand),))
            case ast.UnaryOp(op=ast.USub()):
                number = self._numbers(node.operand)
                opposite = Operation("*", (Constant(-1), number))
                tree = Constant(-number.value) if isinstance(number, Constant) else opposite
            case ast.BinOp() if type(node.op) in _SIGNS:
                operands = self._numbers(node.left), self._numbers(node.right)
                tree = Operation(_SIGNS[type(node.op)], operands)
            case ast.Compare() if all(type(sign) in _SIGNS for sign in node.ops):
                tree = self._compared(node)
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                tree = Constant(value)
            case ast.Name():
                tree = _NAMES.get(name := self._show(node)) or TableColumn(name)
            case ast.Call(func=ast.Name(id=name), args=[leaf], keywords=[]) if name in REDUCTIONS:
                tree = Reduced(tuple(self._show(leaf).split(".")), cast(Reduction, name))
            case _:
                raise self._wrong(node, "is not part of the language of conditions")
        return tree

    def _compared(self, node: ast.Compare) -> Node:
        """Return the tree of comparisons, those of a chain joined by and."""
        operands = (node.left, *node.comparators)
        trees = [*map(self._tree, operands)]
        if len({*map(self._is_flag, operands, trees)}) > 1:
            raise self._wrong(node, "compares a number with true or false")
        signs = (_SIGNS[type(sign)] for sign in node.ops)
        pairs = zip(signs, itertools.pairwise(trees), strict=True)
        compared = tuple(Operation(sign, pair) for sign, pair in pairs)
        return compared[0] if len(compared) == 1 else Operation("&", compared)

    def _flags(self, node: ast.expr) -> Node:
        """Return the tree of what is true or false of each trajectory."""
        if not self._is_flag(node, tree := self._tree(node)):
            raise self._wrong(node, "is a number, not true or false")
        return tree

    def _numbers(self, node: ast.expr) -> Node:
        """Return the tree of what is a number of each trajectory."""
        if self._is_flag(node, tree := self._tree(node)):
            raise self._wrong(node, "is true or false, not a number")
        return tree

    def _is_flag(self, node: ast.expr, tree: Node) -> bool:
        """Return whether values are true or false; the table keeps those that are read for it."""
        if isinstance(tree, Operation):
            return tree.operator not in ARITHMETIC
        try:
            return np.asarray(tree.values(self._leaves)).dtype == np.bool_
        except UsageError as error:
            raise self._wrong(node, f"cannot be read. {error}") from error

    def _show(self, node: ast.expr) -> str:
        return ast.unparse(node).replace(RETURN, "return")

    def _wrong(self, node: ast.expr, why: str) -> UsageError:
        return self._refused(f"Condition {_shown(self._where)!r}: {_shown(self._show(node))} {why}")

    def _refused(self, why: str) -> UsageError:
        return UsageError(
            f"{why.removesuffix('.')}. Expected something such as 'return > 300 and length >= "
            f"100', of numbers, the columns {', '.join(self._table)}, and reductions such as "
            f"max(action): {', '.join(REDUCTIONS)}."
        )


def _shown(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}..."
