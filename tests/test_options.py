"""Options that are declared once: what Python, its help and its errors say of who takes them."""

from __future__ import annotations

import inspect
import pickle
import pydoc
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
import pytest

from datasets_cli.core.options import (
    argument_docs,
    check_numbers,
    parameters_of,
    part_of,
    takes_fields,
)
from datasets_cli.errors import UsageError, argument, arguments_named
from tests.support.refusals import refused

MEANT = r"'sed'; did you mean 'seed'\?"


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """How rows are drawn.

    Args:
        seed: of the draws, and of
            epochs.
        replacement: draw with replacement.
    """

    seed: int = 0
    replacement: bool = True

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ValueError("seed is below 0")


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where it is.

    Args:
        root: the cache root.

    Raises:
        ValueError: it is nowhere.
    """

    root: str | None = None


@dataclass(frozen=True)
class Call(Drawing, Place):
    """A call.

    Args:
        id: of the dataset.
        count: of rows.
    """

    id: str
    count: int = 1
    _: KW_ONLY
    text: bool = False


@takes_fields(Call)
def draw(call: Call) -> Call:
    """Draw rows.

    Any number of them.

    Raises:
        ValueError: the seed is below 0.
    """
    return call


class Drawer:
    """Draws.

    Raises:
        ValueError: the seed is below 0.
    """

    @takes_fields(Call)
    def __init__(self, call: Call) -> None:
        self.call = call

    @takes_fields(Drawing)
    def again(self, drawing: Drawing) -> tuple[Drawer, Drawing]:
        """Draw again."""
        return self, drawing


class Named(Drawer):
    """Has another name."""


@takes_fields(Drawing)
def draw_of(rows: list[int], drawing: Drawing) -> tuple[list[int], Drawing]:
    """Draw of rows.

    Args:
        rows: to draw of.
    """
    return rows, drawing


def test_the_body_gets_one_object_of_all_that_is_given() -> None:
    assert draw("a") == Call("a")
    assert draw("a", 3, seed=4, root="/r", text=True) == Call("a", 3, seed=4, root="/r", text=True)
    assert draw(count=3, id="a") == Call("a", 3)
    drawer = Drawer("a", text=True)
    assert drawer.call == Call("a", text=True)
    assert drawer.again(replacement=False) == (drawer, Drawing(replacement=False))
    assert Named("b", 2).call == Call("b", 2)
    assert draw_of([1], seed=2) == ([1], Drawing(seed=2))
    of_names: Any = draw_of
    assert of_names(seed=2, rows=[1]) == ([1], Drawing(seed=2))


def test_the_signature_is_written_out() -> None:
    shown = "(id: 'str', count: 'int' = 1, *, text: 'bool' = False, seed: 'int' = 0, "
    shown += "replacement: 'bool' = True, root: 'str | None' = None) -> 'Call'"
    assert str(inspect.signature(draw)) == shown
    page = pydoc.plain(pydoc.render_doc(draw))  # Python 3.13 puts an argument on each line
    assert "".join(shown.split()) in "".join(page.split())
    assert [*inspect.signature(Drawer).parameters] == [*inspect.signature(draw).parameters]
    assert [*inspect.signature(Drawer.again).parameters] == ["self", "seed", "replacement"]
    assert [*inspect.signature(draw_of).parameters] == ["rows", "seed", "replacement"]
    assert draw.__annotations__ == {
        "id": "str",
        "count": "int",
        "root": "str | None",
        "seed": "int",
        "replacement": "bool",
        "text": "bool",
        "return": "Call",
    }


def test_the_docstring_has_what_the_dataclasses_say_of_each_argument() -> None:
    assert draw.__doc__ == (
        "Draw rows.\n\nAny number of them.\n\nArgs:\n    id: of the dataset.\n    count: of rows.\n"
        "    seed: of the draws, and of\n        epochs.\n    replacement: draw with replacement.\n"
        "    root: the cache root.\n\nRaises:\n"
        "    ValueError: the seed is below 0."
    )
    assert draw_of.__doc__ == (
        "Draw of rows.\n\nArgs:\n    rows: to draw of.\n    seed: of the draws, and of\n"
        "        epochs.\n    replacement: draw with replacement."
    )
    assert Drawer.__init__.__doc__ is None
    assert Drawer.__doc__ == (draw.__doc__ or "").replace(
        "Draw rows.\n\nAny number of them.", "Draws."
    )
    assert (draw.__name__, draw.__module__) == ("draw", __name__)
    assert argument_docs(Place) == {"root": "    root: the cache root."}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: draw("a", sed=1), rf"^draw\(\) got an unexpected keyword argument {MEANT}$"),
        (lambda: draw(xyz=1), r"^draw\(\) got an unexpected keyword argument 'xyz'$"),
        (draw, r"^draw\(\) missing a required argument: 'id'$"),
        (lambda: draw("a", 1, 2), r"^draw\(\) too many positional arguments$"),
        (lambda: draw("a", id="a"), r"^draw\(\) multiple values for argument 'id'$"),
        (lambda: Named("a", sed=1), rf"^Named.__init__\(\) got an .*{MEANT}$"),
        (lambda: Drawer("a").again(sed=1), rf"^Drawer.again\(\) got an .*{MEANT}$"),
    ],
)
def test_a_wrong_call_names_what_was_called(call: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()


@pytest.mark.parametrize(
    ("argument", "found", "expected"),
    [
        ("replacement", "no", "True or False"),
        ("text", None, "True or False"),
        ("root", 5, "text or None"),
        ("id", 3, "text"),
    ],
)
def test_a_value_of_another_type_than_is_declared_is_refused(
    argument: str, found: Any, expected: str
) -> None:
    with refused(UsageError, argument=argument, expected=expected, found=found):
        draw(**{"id": "a", argument: found})


def test_a_bool_may_be_that_of_numpy() -> None:
    numpys: Any = np.bool_(True)
    assert draw("a", text=numpys).text


@dataclass(frozen=True, kw_only=True)
class Sorted(Drawing, Place):
    """Has an order of its own."""

    FIRST = ("root", "replacement")

    own: int = 0


def test_the_keywords_that_are_named_first_stand_first() -> None:
    assert [each.name for each in parameters_of(Sorted)] == ["root", "replacement", "own", "seed"]


def test_a_part_has_the_fields_of_one_base() -> None:
    call = Call("a", seed=4, replacement=False, root="/r")
    assert part_of(call, Drawing) == Drawing(seed=4, replacement=False)
    assert part_of(call, Place) == Place(root="/r")


def test_an_argument_has_the_name_that_the_caller_wrote() -> None:
    address = "https://me:secret@example.org/f"
    error = UsageError(f"{argument('source', address)} is not {argument('seed')}.")
    assert str(error) == "source=https://example.org/f is not seed."
    from_worker = pickle.dumps(error)
    with arguments_named(lambda name, value: f"--{name} {value}".strip()):
        error = pickle.loads(from_worker)
    assert str(error) == "--source https://example.org/f is not --seed."


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "2", 2**64])
def test_a_number_is_checked_as_its_field_declares(value: Any) -> None:
    @dataclass
    class Counted:
        count: int | None = field(default=1, metadata={"least": 1})

    check_numbers(Counted(None))
    check_numbers(Counted(3))
    with refused(UsageError, argument="count", found=value):
        check_numbers(Counted(value))
