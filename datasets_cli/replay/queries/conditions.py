"""Conditions on trajectories: trees of terms, written by ``traj`` or as text.

Python's parser reads a text, ``return > 300 and length >= 100``. Its tree is evaluated here, and
nothing of it is run: a text may come from a configuration file.
"""

from __future__ import annotations

import ast
import itertools
import logging
import math
import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial, reduce
from typing import Literal, NoReturn, Protocol, cast

import numpy as np
import torch

from datasets_cli.errors import Unsupported, UsageError, WrongRows
from datasets_cli.replay.arguments import NestedKey, nested_key
from datasets_cli.replay.queries.trajectory import (
    Trajectory,
    TrajectoryLeaves,
    find_leaf,
    leaves_of,
    whole_trajectory,
)
from datasets_cli.replay.trajectories.trajectory_table import (
    REDUCTIONS,
    TEXTS,
    UFUNCS,
    Reduction,
    Trajectories,
    reduce_blocks,
    reduce_entries,
)
from datasets_cli.schema.columns import Key, show_key
from datasets_cli.schema.shapes import LengthArray, MaskArray

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

logger = logging.getLogger(__name__)

MOST_TEXTS = 5
"""The most texts of a column that a warning names."""

MAX_LENGTH = 10_000
"""The most characters of a condition as text."""

RETURN = "return_"
"""The column ``return`` in a text for Python's parser, which has a keyword of that name."""

DIGIT = "digit_"
"""Before a name that begins with a digit, such as that of robomimic's subset ``20_percent``."""

NOT_QUOTED = re.compile(
    r"""(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|\breturn\b|\s+|(?<=[A-Za-z_]\.)(?=\d)""",
    re.DOTALL,
)
"""What is replaced in a condition before it is parsed; a quoted text is matched, and kept."""

EXAMPLE = "return > 300 and length >= 100"

NUMBER, FLAG, TEXT = "a number", "true or false", "text"
"""The kinds of values in a condition, as errors name them."""

SIGNS: dict[type[ast.AST], Operator] = {
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


class Term(Protocol):
    """A number or a truth value of each trajectory."""

    def values(self, leaves: TrajectoryLeaves) -> TermValues:
        """Return the value of each trajectory, ``[K]``; a Python value where it is constant."""


@dataclass(frozen=True)
class Length:
    """The number of rows of each trajectory."""

    def values(self, leaves: TrajectoryLeaves) -> LengthArray:
        return leaves.num_transitions


@dataclass(frozen=True)
class Reduced:
    """The numbers of an entry in all rows of each trajectory, reduced to one."""

    key: Key
    reduction: Reduction

    def values(self, leaves: TrajectoryLeaves) -> np.ndarray:
        """Return a number for each trajectory, ``[K]``."""
        key = find_leaf(leaves, self.key)
        reduced = leaves.reduce(key, self.reduction)
        shape = reduced.shape[1:]
        if math.prod(shape) == 1:
            return reduced.reshape(len(reduced))
        if self.reduction not in UFUNCS or not math.prod(shape):
            raise WrongRows(
                f"{self.reduction}() needs one number per row; {show_key(key)} has the shape "
                f"{list(shape)}.",
                key=key,
                expected="one number per row",
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

    def values(self, leaves: TrajectoryLeaves) -> MaskArray:
        """Return whether the comparison is true, bool ``[K]``."""
        key = find_leaf(leaves, self.key)
        reduced = np.empty(len(leaves.num_transitions), np.bool_)
        offsets = np.concatenate(([0], leaves.num_transitions.cumsum()))
        blocks = (self._rows(key, block) for block in leaves.blocks(key))
        reduce_blocks(self.reduction, blocks, offsets, reduced)
        return reduced

    def _rows(self, key: Key, block: np.ndarray) -> MaskArray:
        """Return whether the comparison is true of each row of a block ``[n, ...]``."""
        try:
            np.broadcast_to(self.other, block.shape[1:])
        except ValueError as error:
            raise WrongRows(
                f"Rows of {show_key(key)} have the shape {list(block.shape[1:])} and cannot be "
                f"compared with numbers of the shape {list(np.shape(self.other))}.",
                key=key,
                expected=list(block.shape[1:]),
                found=list(np.shape(self.other)),
                advice="Compare them with one number, or with one for each number of a row.",
            ) from error
        return reduce_entries(self.reduction, np.asarray(apply(self.sign, [block, self.other])))


@dataclass(frozen=True)
class FunctionTerm:
    """A user's function of a trajectory."""

    function: Callable[[Trajectory], object]
    keys: EntryKeys | None = None

    def values(self, leaves: TrajectoryLeaves) -> MaskArray:
        """Return the result of the function for a single trajectory, bool ``[1]``."""
        trajectory = whole_trajectory(leaves)
        if trajectory is None:
            raise Unsupported(
                f"filter() reads a table of trajectories; {self.function!r} is a function of a "
                "whole trajectory.",
                argument="where",
                expected="a function of the table",
                found=self.function,
                advice="Pass it to query(), or pass filter() a function of the table or a "
                "condition of traj.",
            )
        answer = self.function(trajectory)
        size = math.prod(answer.shape) if isinstance(answer, np.ndarray | torch.Tensor) else 1
        if answer is None or size != 1:
            shown = "None" if answer is None else f"{type(answer).__name__} of {size} values"
            raise UsageError(
                f"{self.function!r} must return True or False for a trajectory; found {shown}.",
                argument="predicate",
                expected="True or False",
                found=shown,
            )
        return np.array([bool(answer)])


@dataclass(frozen=True)
class Operation:
    """An operator and its operands, terms or constants."""

    operator: Operator
    operands: tuple[Term | ConstantValue, ...]

    def values(self, leaves: TrajectoryLeaves) -> TermValues:
        """Return the result for each trajectory, ``[K]``."""
        values: list[TermValues] = []
        is_joined = self.operator in ("&", "|") and whole_trajectory(leaves) is not None
        for operand in self.operands:
            values.append(operand if isinstance(operand, int | float) else operand.values(leaves))
            # For a single trajectory, stop at the first operand that decides the result.
            if is_joined and bool(values[-1]) is (self.operator == "|"):
                return values[-1]
        return apply(self.operator, values)


def apply(sign: Operator, values: list[TermValues]) -> TermValues:
    """Return the result of an operator; a Python value if all operands are."""
    function = OPERATORS[sign]
    with np.errstate(all="ignore"):  # NaN is a value; overflow gives infinity
        result = reduce(function, values) if len(values) > 1 else function(*values)
    return result.item() if isinstance(result, np.generic) else result


def keys_of(tree: Term | ConstantValue) -> EntryKeys | None:
    """Return the entries that a tree reads, or None if a function does not declare them."""
    if isinstance(tree, Operation):
        keys = [*map(keys_of, tree.operands)]
        return None if None in keys else frozenset().union(*filter(None, keys))
    if isinstance(tree, FunctionTerm):
        return tree.keys
    return frozenset({nested_key(tree.key)} if isinstance(tree, Reduced | RowsCompared) else ())


def reads_trajectories(tree: Term | ConstantValue) -> bool:
    """Return whether a tree contains a function of whole trajectories."""
    if isinstance(tree, Operation):
        return any(map(reads_trajectories, tree.operands))
    return isinstance(tree, FunctionTerm)


def holds(tree: Term, trajectory: Trajectory) -> bool:
    """Return whether a condition is true of one trajectory."""
    return bool(np.all(tree.values(leaves_of(trajectory))))


class TrajectoryPredicate:
    """A condition on trajectories, such as ``(traj.reward.sum() > 100) & (traj.length >= 50)``.

    ``&`` and ``|`` join two conditions, and ``~`` negates one. Called with a trajectory, it returns
    whether the condition holds. It can be pickled.

    Args:
        fn: a function that returns True or False for a trajectory, which is read whole. Conditions
            of ``traj`` read only the entries that they name.
        description: the text of ``repr``.
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
                f"fn must be a function of a trajectory, not {fn!r}.",
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
        """Return the entries that the condition reads, or None if its function lacks ``keys``."""
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
                f"{self._description} {operator} {other!r}: {operator} joins two conditions on "
                "trajectories.",
                expected="a condition on trajectories",
                found=other,
                advice="End a comparison of rows with .any() or .all(); pass a function to "
                "TrajectoryPredicate(fn).",
            )
        description = f"({self._description} {operator} {other._description})"
        first = self._tree
        # A chain, a & b & c, is one operation, however long it is.
        if isinstance(first, Operation) and first.operator == operator:
            return predicate_of(Operation(operator, (*first.operands, other._tree)), description)
        return predicate_of(Operation(operator, (first, other._tree)), description)

    def __bool__(self) -> NoReturn:
        # Python calls this for "a and b", "not a" and "1 < a < 2", and would drop an operand.
        raise UsageError(
            f"{self._description} is true or false for each trajectory and has no single value.",
            found=self,
            advice="Write &, | and ~ in place of and, or and not, each operand in brackets, and "
            "(50 <= traj.length) & (traj.length < 60) in place of 50 <= traj.length < 60.",
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


def parse_condition(where: str) -> ast.expr:
    """Return the tree of a condition as text; its names are not looked up."""
    if len(where) > MAX_LENGTH:
        raise UsageError(
            f"Condition too long: {len(where):,} characters, at most {MAX_LENGTH:,} allowed.",
            argument="where",
            expected=MAX_LENGTH,
            found=len(where),
            advice="Pass filter() a function of the table.",
        )
    source = NOT_QUOTED.sub(_for_parser, where.strip())
    try:
        return ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError) as error:
        raise _unreadable(where) from error


def _for_parser(found: re.Match[str]) -> str:
    """Return a text as it is, the keyword as a name, and any space as one, to have one line."""
    return found["text"] or {"return": RETURN, "": DIGIT}.get(found[0], " ")


class TextCondition:
    """A condition as text on the trajectories of a table."""

    def __init__(self, where: str, table: Trajectories) -> None:
        self._where, self._table = where, table

    def mask(self) -> MaskArray:
        """Return whether the condition is true of each trajectory, bool ``[K]``."""
        tree = parse_condition(self._where)
        try:
            flags = self._flags(tree)
        except UsageError as error:
            error.prepend(f"Condition {_shortened(self._where)!r}: ")
            raise
        except (ValueError, OverflowError, RecursionError, MemoryError) as error:
            raise _unreadable(self._where) from error
        return np.broadcast_to(flags, len(self._table))

    def _values(self, node: ast.expr) -> TermValues:
        """Return the value of each trajectory, ``[K]``; a Python value where it is constant."""
        values: TermValues
        match node:
            case ast.BoolOp():
                values = apply(SIGNS[type(node.op)], [*map(self._flags, node.values)])
            case ast.UnaryOp(op=ast.Not()):
                values = apply("~", [self._flags(node.operand)])
            case ast.UnaryOp(op=ast.USub()):
                number = self._numbers(node.operand)
                values = -number if isinstance(number, int | float) else apply("*", [-1, number])
            case ast.BinOp() if type(node.op) in SIGNS:
                operands = self._numbers(node.left), self._numbers(node.right)
                values = apply(SIGNS[type(node.op)], [*operands])
            case ast.Compare() if all(type(sign) in SIGNS for sign in node.ops):
                values = self._compared(node)
            case ast.Constant(value=str() as value):
                values = np.array(value, object)  # numpy's own texts drop a zero at the end
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                values = value
            case ast.Name(id="true" | "false" as name):
                values = name == "true"
            case ast.Name():
                values = self._column(node)
            case ast.Call(func=ast.Name(id=name), args=[leaf], keywords=[]) if name in REDUCTIONS:
                values = self._reduced(leaf, cast(Reduction, name))
            case _:
                raise self._rejected(node, "is not part of the language of conditions")
        return values

    def _compared(self, node: ast.Compare) -> TermValues:
        """Return the result of a comparison; the parts of a chain are joined by ``and``."""
        sides = (node.left, *node.comparators)
        names = [_text_of(each) for each in sides if isinstance(each, ast.Name)]
        if any(name in TEXTS for name in names):
            for name in (each for each in names if each not in (*self._table, *TEXTS)):
                raise self._rejected(node, f"needs quotes around the text: {name!r}")
        operands = [*map(self._values, (node.left, *node.comparators))]
        kinds = [*dict.fromkeys(map(_kind, operands))]
        if len(kinds) > 1:
            raise self._rejected(node, f"compares {' with '.join(kinds)}")
        if kinds == [TEXT] and not all(isinstance(sign, ast.Eq | ast.NotEq) for sign in node.ops):
            raise self._rejected(node, "compares text by another sign than == and !=")
        for name in (each for each in names if each in TEXTS):
            self._warn_of_other_texts(name, operands)
        signs = (SIGNS[type(sign)] for sign in node.ops)
        pairs = zip(signs, itertools.pairwise(operands), strict=True)
        compared = [apply(sign, [*pair]) for sign, pair in pairs]
        return compared[0] if len(compared) == 1 else apply("&", compared)

    def _warn_of_other_texts(self, name: str, operands: Iterable[TermValues]) -> None:
        """Name the texts of a column if no trajectory has the one that it is compared with."""
        known = dict.fromkeys(self._table[name].tolist())
        for text in (str(each) for each in operands if np.ndim(each) == 0):
            if text not in known:
                shown = ", ".join(map(repr, itertools.islice(known, MOST_TEXTS)))
                more = f" and {len(known) - MOST_TEXTS} more" * (len(known) > MOST_TEXTS)
                logger.warning("No trajectory has the %s %r; found %s%s.", name, text, shown, more)

    def _column(self, node: ast.Name) -> np.ndarray:
        name = _text_of(node)
        column = self._table[name]
        if column.ndim > 1:
            raise WrongRows(
                f"A condition needs one number per trajectory; {name} has the shape "
                f"{list(column.shape[1:])}.",
                key=name,
                expected="one number per trajectory",
                found=list(column.shape[1:]),
                advice="Pass filter() a function of the table.",
            )
        return column

    def _reduced(self, leaf: ast.expr, reduction: Reduction) -> np.ndarray:
        return Reduced(tuple(_text_of(leaf).split(".")), reduction).values(self._table)

    def _flags(self, node: ast.expr) -> TermValues:
        """Return the value of each trajectory, checked to be true or false."""
        if (kind := _kind(values := self._values(node))) != FLAG:
            raise self._rejected(node, f"is {kind}, not {FLAG}")
        return values

    def _numbers(self, node: ast.expr) -> TermValues:
        """Return the value of each trajectory, checked to be a number."""
        if (kind := _kind(values := self._values(node))) != NUMBER:
            raise self._rejected(node, f"is {kind}, not {NUMBER}")
        return values

    def _rejected(self, node: ast.expr, reason: str) -> UsageError:
        part = _shortened(_text_of(node))
        return UsageError(
            f"{part} {reason}.",
            argument="where",
            found=part,
            advice=f"Write a condition such as {EXAMPLE!r}, of numbers, the columns "
            f"{', '.join(self._table)}, and reductions such as max(action): "
            f"{', '.join(REDUCTIONS)}.",
        )


def _unreadable(where: str) -> UsageError:
    return UsageError(
        f"Condition {_shortened(where)!r} cannot be read.",
        argument="where",
        found=_shortened(where),
        advice=f"Write a condition such as {EXAMPLE!r}.",
    )


def _shortened(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}..."


def _text_of(node: ast.expr) -> str:
    return ast.unparse(node).replace(RETURN, "return").replace(f".{DIGIT}", ".")


def _kind(values: TermValues) -> str:
    if isinstance(values, int):  # numpy has no dtype for the largest
        return FLAG if isinstance(values, bool) else NUMBER
    dtype = np.asarray(values).dtype
    return FLAG if dtype == np.bool_ else TEXT if dtype.hasobject else NUMBER
