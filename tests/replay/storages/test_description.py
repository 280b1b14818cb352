"""Values that are no tensors come back from JSON equal and of the same type, or are refused."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets_cli.errors import WrongRows, WrongSize
from datasets_cli.replay.storages.description import TAG, from_json, to_json
from tests.support.refusals import refused

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.integers(15_000, 20_000).map(lambda bits: 2**bits)  # more digits than Python prints
)
KEYS = st.text() | st.sampled_from([TAG, "", "data"]) | st.integers() | st.binary() | st.none()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner) | st.lists(inner).map(tuple),
    max_leaves=20,
)


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal, of the same types, NaN and -0.0 included."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return math.isnan(other) if math.isnan(one) else one.hex() == other.hex()
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        keys = all(map(same, one, other)) and len(one) == len(other)
        return keys and all(map(same, one.values(), other.values()))
    return bool(one == other)


@given(value=VALUES)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    text = json.dumps(to_json(value, "value"), allow_nan=False)
    assert same(from_json(json.loads(text)), value)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (object(), "row is builtins.object"),
        ([1, {"a": np.zeros(1)}], r"row\[1\]\['a'\] is numpy.ndarray"),
        (np.longdouble(1), "row is numpy.longdouble"),
        (np.complex64(1), "row is numpy.complex64"),
        ({"a": {1, 2}}, r"row\['a'\] is builtins.set"),
        ((np.zeros(2),), r"row\[0\] is numpy.ndarray"),
        (print, "row is builtins.builtin_function_or_method"),
    ],
)
def test_other_values_are_refused_by_name(value: Any, name: str) -> None:
    with refused(WrongRows):
        to_json(value, "row")


def test_numbers_of_numpy_are_pythons() -> None:
    found = to_json([np.float64(1.5), np.float32(0.5), np.uint8(3), np.bool_(True)], "row")
    assert repr(found) == "[1.5, 0.5, 3, True]"


def test_values_that_are_nested_without_end_are_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with refused(WrongSize):
        to_json(value, "row")


@pytest.mark.parametrize(
    "tagged",
    [
        {TAG: 1},
        {TAG: []},
        {TAG: ["bytes"]},
        {TAG: ["bytes", "!"]},
        {TAG: ["bytes", 3]},
        {TAG: ["int", "zz"]},
        {TAG: ["float", []]},
        {TAG: ["dict", [[[], 1]]]},
        {TAG: ["dict", [1]]},
        {TAG: ["eval", "1"]},
        {TAG: [[], "1"]},
        {TAG: ["tuple", None]},
    ],
)
def test_a_tag_that_is_wrong_is_an_error(tagged: Any) -> None:
    with pytest.raises(ValueError, match="a tag is wrong"):
        from_json([tagged])
