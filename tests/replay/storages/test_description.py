"""Values without tensors are restored from JSON equal and of the same type, or rejected."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets_cli.errors import WrongRows, WrongSize
from datasets_cli.replay.storages.description import TAG, VALUES, RowsJson, describe, value_of
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
ANY_VALUE = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner) | st.lists(inner).map(tuple),
    max_leaves=20,
)


def described(value: Any) -> RowsJson:
    """The description of a value without tensors."""
    return describe(value, kinds=VALUES)[0]


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


@given(value=ANY_VALUE)
def test_a_value_is_restored_as_it_was(value: Any) -> None:
    text = json.dumps(described(value), allow_nan=False)
    assert same(value_of(json.loads(text)), value)


@pytest.mark.parametrize(
    ("value", "key", "kind"),
    [
        (object(), "rows", "object"),
        ([1, {"a": np.zeros(1)}], "rows[1]['a']", "ndarray"),
        (np.longdouble(1), "rows", "longdouble"),
        (np.complex64(1), "rows", "complex64"),
        ({"a": {1, 2}}, "rows['a']", "set"),
        ((np.zeros(2),), "rows[0]", "ndarray"),
        (print, "rows", "builtin_function_or_method"),
    ],
)
def test_other_values_are_rejected_by_key_and_type(value: Any, key: str, kind: str) -> None:
    with refused(WrongRows, key=key, found=kind):
        described(value)


def test_numbers_of_numpy_are_pythons() -> None:
    found = described([np.float64(1.5), np.float32(0.5), np.uint8(3), np.bool_(True)])
    assert repr(found) == "[1.5, 0.5, 3, True]"


def test_a_value_that_contains_itself_is_rejected() -> None:
    value: list[Any] = []
    value.append(value)
    with refused(WrongSize, key="rows" + 24 * "[0]"):
        described(value)


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
        value_of([tagged])
