"""Which trajectories filter, split and take keep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datasets_cli import ExperienceReplay
from datasets_cli.errors import UnknownKey, UsageError, WrongSize
from tests.replay.views.conftest import LENGTHS, install
from tests.support.refusals import refused


def numbers_of(view: ExperienceReplay) -> list[int]:
    return view.trajectories["number"].tolist()


# filter


def test_a_function_of_the_table_gives_a_mask_or_numbers(toy: ExperienceReplay) -> None:
    longest = toy.filter(lambda table: table["length"] == table["length"].max())
    assert numbers_of(longest) == [2, 4]
    assert numbers_of(toy.filter(lambda table: np.argsort(-table["return"])[:2])) == [4, 2]
    assert numbers_of(longest.filter("number > 2")) == [4]


@pytest.mark.parametrize("wrong", [3, None, [True] * 5])
def test_a_filter_that_is_neither_text_nor_function_is_refused(
    toy: ExperienceReplay, wrong: Any
) -> None:
    with refused(UsageError, argument="where", found=wrong):
        toy.filter(wrong)


def test_a_function_that_lacks_its_return_is_refused(toy: ExperienceReplay) -> None:
    with refused(UsageError, argument="where", expected="a mask or numbers", found="None"):
        toy.filter(lambda table: None)  # type: ignore[arg-type, return-value]


def test_a_mask_of_another_length_is_refused(toy: ExperienceReplay) -> None:
    expected = "whole numbers, or a mask of 5 bools"
    with refused(UsageError, expected=expected, found="bool [4]"):
        toy.filter(lambda table: np.ones(4, bool))


# split


@pytest.mark.parametrize(
    ("fractions", "sizes"),
    [
        ((0.9,), [90, 10]),
        ((0.8, 0.1), [80, 10, 10]),
        ((0.5, 0.5), [50, 50]),
        ((0.33,) * 3, [33, 33, 33, 1]),
        ((0.0, 1.0), [0, 100]),
    ],
)
def test_parts_of_a_split_are_disjoint_and_together_all(
    root: Path, fractions: tuple[float, ...], sizes: list[int]
) -> None:
    replay = ExperienceReplay(install(root, "ted", (1,) * 100), root=root, download=False)
    parts = replay.split(*fractions)
    assert [len(part) for part in parts] == sizes
    assert sorted(number for part in parts for number in numbers_of(part)) == [*range(100)]
    assert all(numbers_of(part) == sorted(numbers_of(part)) for part in parts)


def test_a_seed_decides_a_split(root: Path) -> None:
    replay = ExperienceReplay(install(root, "ted", (1,) * 100), root=root, download=False)
    first, again, other = (replay.split(0.5, seed=seed)[0] for seed in (0, 0, 1))
    assert numbers_of(first) == numbers_of(again) != numbers_of(other)
    # Kept by everyone who wrote it down, so it never changes.
    assert numbers_of(first)[:8] == SPLIT_OF_SEED_0


def test_a_part_of_a_split_that_is_empty_is_told(toy: ExperienceReplay) -> None:
    with pytest.warns(UserWarning, match=r"Part 1 of split\(0.95, .* 5 traj") as told:
        assert [len(part.trajectories) for part in toy.split(0.95)] == [5, 0]
    assert len(told) == 1 and told[0].filename == __file__
    assert [len(part) for part in toy.take(0).split(0.5)] == [0, 0]  # sampling says why


SPLIT_OF_SEED_0 = [1, 2, 4, 5, 6, 8, 10, 18]


@pytest.mark.parametrize(
    "wrong", [(), (-0.1,), (0.6, 0.6), ("0.5",), (float("nan"),), (True,), ([0.5],)]
)
def test_fractions_that_are_none_are_refused(toy: ExperienceReplay, wrong: Any) -> None:
    with refused(UsageError, argument="fractions"):
        toy.split(*wrong)


# take


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        ({"count": 2}, [0, 1]),
        ({"count": 2, "by": "-length"}, [2, 4]),
        ({"count": 3, "by": "-return"}, [4, 2, 3]),
        ({"count": 2, "by": "return"}, [1, 0]),
        ({"count": 0.4, "by": "-return"}, [4, 2]),
        ({"count": 1.0, "by": "number"}, [0, 1, 2, 3, 4]),
        ({"count": 0}, []),
    ],
)
def test_the_best_are_taken_best_first(
    toy: ExperienceReplay, arguments: Any, numbers: list[int]
) -> None:
    assert numbers_of(toy.take(**arguments)) == numbers


@pytest.mark.parametrize(
    ("arguments", "error", "attributes"),
    [
        ({"count": 6}, WrongSize, {"argument": "count", "expected": "5 at most", "found": 6}),
        ({"count": 0.05}, WrongSize, {"argument": "count", "expected": "0.2 or more"}),
        ({"count": "a"}, UsageError, {"argument": "count", "found": "a"}),
        ({"count": True}, UsageError, {"argument": "count", "found": True}),
        ({"count": -1}, UsageError, {"argument": "count", "found": -1}),
        ({"count": 1.5}, UsageError, {"expected": "a fraction from 0.0 to 1.0", "found": 1.5}),
        ({"count": float("nan")}, UsageError, {"expected": "a fraction from 0.0 to 1.0"}),
        ({"count": 2, "by": "score"}, UnknownKey, {"key": "score"}),
    ],
)
def test_what_cannot_be_taken_is_refused(
    toy: ExperienceReplay, arguments: Any, error: type[UsageError], attributes: dict[str, Any]
) -> None:
    with refused(error, **attributes):
        toy.take(**arguments)


@pytest.mark.parametrize("num_trajectories", [1, 2, 7, 150])
def test_the_least_fraction_that_a_refusal_names_leaves_a_trajectory(
    root: Path, num_trajectories: int
) -> None:
    id = install(root, "ted", (1,) * num_trajectories)
    replay = ExperienceReplay(id, root=root, download=False)
    with pytest.raises(WrongSize) as refusal:
        replay.take(0.001)
    least = float(str(refusal.value.expected).removesuffix(" or more"))
    assert numbers_of(replay.take(least)) == [0]
    assert numbers_of(replay.take(0.0)) == []


# rows


@pytest.mark.parametrize("wrong", [(-1, 3), (3, 2), (0, sum(LENGTHS) + 1)])
def test_rows_that_are_none_are_refused(toy: ExperienceReplay, wrong: tuple[int, int]) -> None:
    with pytest.raises(IndexError):
        toy.rows(*wrong)
