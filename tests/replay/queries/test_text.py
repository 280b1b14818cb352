"""Conditions as text: what they mean is what Python means by them, and nothing else is run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datasets_cli import ExperienceReplay
from datasets_cli.errors import UnknownKey, UsageError, WrongRows
from datasets_cli.replay.queries.conditions import EXAMPLE, TextCondition
from tests.replay.views.conftest import LENGTHS
from tests.support.refusals import refused

STARTS = np.cumsum([0, *LENGTHS])


def test_a_condition_keeps_the_trajectories_that_it_holds_for(replay: ExperienceReplay) -> None:
    for where, numbers in [
        ("length > 4", [2, 4]),
        ("length >= 4 and length != 6", [0]),
        ("3 <= length < 6", [0, 3]),
        ("not length == 6 or number == 4", [0, 1, 3, 4]),
        ("return > 12 and length >= 4", [2, 4]),
        ("return / length < 3", [0, 1]),
        ("terminated", [0, 1, 2, 3, 4]),
        ("truncated or terminated == false", []),
        ("start * 2 - 1 > 20 / (1 + 1)", [3, 4]),
        ("max(next.reward) >= 5", [2, 3, 4]),
        ("length > 3\n    and length < 6", [0]),
        ("min(action) == -(-4)", [1]),
        ("last(action) - first(action) == length - 1", [0, 1, 2, 3, 4]),
        ("mean(next.reward) > 1e-1 and true", [0, 1, 2, 3, 4]),
        ("length / (length - 1) > 1e300", [1]),
    ]:
        assert replay.filter(where).trajectories["number"].tolist() == numbers, where


COLUMNS = st.sampled_from(["length", "number", "start", "max(action)"])
NUMBERS = st.recursive(
    COLUMNS | st.integers(0, 20).map(str) | st.floats(0.1, 20).map("{:.3f}".format),
    lambda part: st.tuples(part, st.sampled_from("+-*"), part).map("({0[0]} {0[1]} {0[2]})".format),
    max_leaves=3,
)
COMPARED = st.tuples(NUMBERS, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), NUMBERS)
CONDITIONS = st.recursive(
    COMPARED.map(" ".join),
    lambda part: (
        st.tuples(part, st.sampled_from(["and", "or"]), part).map(" ".join)
        | part.map("not ({})".format)
    ),
    max_leaves=4,
)


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(where=CONDITIONS)
def test_conditions_are_those_of_python_for_each_trajectory(
    where: str, replay: ExperienceReplay
) -> None:
    found = TextCondition(where, replay.trajectories).mask().tolist()
    for number, length in enumerate(LENGTHS):
        start = int(STARTS[number])
        names = {"number": number, "length": length, "start": start}
        last = start + length - 1
        right = eval(where, {"max": lambda action: action}, {**names, "action": last})
        assert found[number] is bool(right)


LONG = "+".join(["length"] * 250)
DIGITS = f"return > 1{'0' * 400}"


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("", ""),
        ("return >", "return >"),
        ("length > 3; length", "length > 3; length"),
        ("length := 3", "length := 3"),
        ("length > 3\0", "length > 3\0"),
        (DIGITS, DIGITS[:200] + "..."),
        ("(" * 3000 + "length" + ")" * 3000, "(" * 200 + "..."),
        ("length", "length"),
        ("length and terminated", "length"),
        ("terminated + 1 > 0", "terminated"),
        ("terminated > 0", "terminated > 0"),
        (f"true == {LONG}", f"true == {LONG}".replace("+", " + ")[:200] + "..."),
        ("median(action) > 3", "median(action)"),
        ("max(action, action) > 3", "max(action, action)"),
        ("__import__('os').system('true')", "__import__('os').system('true')"),
        ("length.__class__ == 3", "length.__class__"),
        ("[length][0] > 3", "[length][0]"),
        ("(lambda: length)() > 3", "(lambda: length)()"),
        ("length ** 9 > 3", "length ** 9"),
        ("length is 3", "length is 3"),
        ("length > 3j", "3j"),
        ("length > '3'", "'3'"),
    ],
)
def test_a_text_that_is_not_a_condition_is_refused_with_the_part_at_fault(
    replay: ExperienceReplay, where: str, found: str
) -> None:
    with refused(UsageError, argument="where", found=found), shows(EXAMPLE):
        replay.filter(where)


@pytest.mark.parametrize(
    ("where", "error", "attributes"),
    [
        ("not " * 3000 + "true", UsageError, {"expected": 10_000, "found": 12_004}),
        ("score > 3", UnknownKey, {"key": "score"}),
        ("max(score) > 3", UnknownKey, {"key": ("score",)}),
        ("first(observation.x) > 3", WrongRows, {"key": ("observation", "x"), "found": [2]}),
        ("max(observation.mission) > 3", WrongRows, {"found": "text"}),
    ],
)
def test_a_column_that_a_condition_cannot_read_is_refused_with_its_advice(
    replay: ExperienceReplay, where: str, error: type[UsageError], attributes: dict[str, Any]
) -> None:
    with refused(error, **attributes), shows("ondition"):
        replay.filter(where)


@contextmanager
def shows(text: str) -> Iterator[None]:
    """Check that an error of few lines shows a text, and its advice last."""
    try:
        yield
    except UsageError as error:
        assert text in str(error) and len(str(error)) < 2000
        assert str(error).endswith(error.advice or "")
        raise
