"""A condition as text and one of ``traj`` hold for the same trajectories."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets_cli import ExperienceReplay, Trajectory, traj
from datasets_cli.replay import TrajectoryPredicate
from tests.support.text_rows import ID, steps_of, write

Spellings = tuple[str, Any]
"""A number or a condition as text, and the same of ``traj``."""

SIGNS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
LEAVES: list[Spellings] = [
    ("reward", traj.reward),
    ("next.reward", traj["next", "reward"]),
    ("action", traj.action),
    ("byte", traj.byte),
    ("half", traj.half),
]
FLAGS: list[Spellings] = [
    *LEAVES,
    ("next.terminated", traj["next", "terminated"]),
    ("observation.x", traj["observation", "x"]),
]


def reduced(leaf: Spellings, reduction: str) -> Spellings:
    return f"{reduction}({leaf[0]})", getattr(leaf[1], reduction)()


def compared(one: Spellings, sign: str, other: Spellings) -> Spellings:
    return f"({one[0]} {sign} {other[0]})", SIGNS[sign](one[1], other[1])


def joined(one: Spellings, word: str, other: Spellings) -> Spellings:
    join = operator.and_ if word == "and" else operator.or_
    return f"({one[0]} {word} {other[0]})", join(one[1], other[1])


# Sums and means of tenths are in float64, single ones in the type of the rows.
numbers = st.one_of(
    st.just(("length", traj.length)),
    st.builds(
        reduced,
        st.sampled_from(LEAVES),
        st.sampled_from(["sum", "mean", "max", "min", "first", "last"]),
    ),
    st.builds(
        reduced,
        st.just(("observation.x", traj["observation", "x"])),
        st.sampled_from(["sum", "mean", "max", "min"]),
    ),
)
constants = st.one_of(
    st.integers(-300, 300).map(lambda tenths: tenths / 10),
    st.integers(-3, 300),
    st.sampled_from([2**53 + 1, -(2**53) - 1, 10**30, 1e300]),
).map(lambda value: (repr(value), value))
conditions = st.recursive(
    st.builds(compared, numbers, st.sampled_from([*SIGNS]), numbers | constants)
    | st.builds(reduced, st.sampled_from(FLAGS), st.sampled_from(["any", "all"])),
    lambda part: (
        st.builds(joined, part, st.sampled_from(["and", "or"]), part)
        | part.map(lambda one: (f"(not {one[0]})", ~one[1]))
    ),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def tenths(tmp_path_factory: pytest.TempPathFactory) -> ExperienceReplay:
    """Return a dataset of numbers that no float holds exactly, in several types."""
    root = tmp_path_factory.mktemp("tenths")
    steps = steps_of(["go"], (4, 1, 6, 3, 6))
    number = np.arange(20)[:, None]
    steps["next", "reward"] = (number / 10).astype(np.float32)
    steps["next", "reward"][7] = np.nan
    steps["byte",] = (number * 15).astype(np.uint8)
    steps["half",] = (number / 10 - 1).astype(np.float16)
    (root / "datasets" / "toy").mkdir(parents=True)
    write(root / "staging", "compact", steps).rename(root / "datasets" / ID)
    return ExperienceReplay(ID, 4, root=root, download=False)


@pytest.fixture(scope="module")
def whole(tenths: ExperienceReplay) -> list[Trajectory]:
    return [*map(Trajectory, tenths.episodes())]


def numbers_of(view: ExperienceReplay) -> list[int]:
    return view.trajectories["number"].tolist()


@settings(max_examples=100)
@given(spellings=conditions)
def test_both_spellings_hold_for_the_same_trajectories(
    spellings: tuple[str, TrajectoryPredicate],
    tenths: ExperienceReplay,
    whole: list[Trajectory],
) -> None:
    text, condition = spellings
    expected = numbers_of(tenths.filter(condition))
    assert numbers_of(tenths.filter(text)) == expected
    assert [place for place, each in enumerate(whole) if condition(each)] == expected


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("first(next.reward) == 0.4", [1]),  # float32, as torch compares it
        ("first(next.reward) == 0.8 / 2", [1]),  # a calculated constant is one, too
        ("last(half) == -0.7", [0]),
        ("first(next.reward) * 1 == 0.4", []),  # calculated in float64
        ("max(byte) + 200 > 390", [3, 4]),  # and so not wrapped around at 256
        ("max(observation.x) >= min(observation.x) + 12", []),
    ],
)
def test_numbers_are_compared_in_the_type_of_the_rows(
    text: str, numbers: list[int], tenths: ExperienceReplay
) -> None:
    assert numbers_of(tenths.filter(text)) == numbers
