"""Conditions as text: what they mean is what Python means by them, and nothing else is run."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datasets_cli import ExperienceReplay
from datasets_cli.errors import UsageError
from datasets_cli.replay.queries.text import TextCondition
from tests.replay.views.conftest import LENGTHS
from tests.support.refusals import check_refused

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


UNKNOWN = "is not part of the language of conditions"


def test_whatever_is_no_condition_is_refused(replay: ExperienceReplay) -> None:
    wrong = [
        ("", "cannot be read"),
        ("return >", "cannot be read"),
        ("length > 3; length", "cannot be read"),
        ("(" * 3000 + "length" + ")" * 3000, "cannot be read"),
        ("not " * 3000 + "true", "Condition too long: 12,004 characters, at most 10,000 allowed"),
        ("length > 3\0", "cannot be read"),
        ("length", "is a number, not true or false"),
        ("length and terminated", "length is a number"),
        (f"true == {'+'.join(['length'] * 250)}", "compares a number with true or false"),
        ("terminated + 1 > 0", "terminated is true or false, not a number"),
        ("terminated > 0", "compares a number with true or false"),
        ("score > 3", "no column 'score'"),
        ("max(score) > 3", "neither score nor next.score"),
        ("first(observation.x) > 3", r"is \[2\] numbers a row"),
        ("median(action) > 3", r"median\(action\) is not part of the language"),
        ("max(action, action) > 3", UNKNOWN),
        ("__import__('os').system('true')", UNKNOWN),
        ("length.__class__ == 3", UNKNOWN),
        ("[length][0] > 3", UNKNOWN),
        ("(lambda: length)() > 3", UNKNOWN),
        ("length ** 9 > 3", UNKNOWN),
        ("length is 3", UNKNOWN),
        ("length > 3j", UNKNOWN),
        ("length > '3'", UNKNOWN),
        ("length := 3", "cannot be read"),
        (f"return > 1{'0' * 400}", "cannot be read"),
    ]
    calls = [(why, partial(replay.filter, where)) for where, why in wrong]
    for refusal in check_refused(UsageError, calls):
        assert "'return > 300 and length >= 100'" in str(refusal)
        assert len(str(refusal)) < 2000


def test_text_cannot_be_compared(replay: ExperienceReplay) -> None:
    with pytest.raises(UsageError, match="is text, not numbers"):
        replay.filter("max(observation.mission) > 3")
