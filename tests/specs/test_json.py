"""Specs to JSON and back."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets_cli import (
    Bounded,
    Categorical,
    Composite,
    MultiCategorical,
    MultiOneHot,
    NonTensor,
    OneHot,
    Unbounded,
    UsageError,
    spec_from_json,
    spec_to_json,
)
from datasets_cli.errors import Unsupported
from datasets_cli.specs import TensorSpec
from datasets_cli.specs.leaf import TextBox
from tests.support.spec_pairs import Made, categorical, one_hot, specs


def through_text(spec: TensorSpec) -> TensorSpec:
    """Return a spec after strict JSON, which has no infinite numbers."""
    return spec_from_json(json.loads(json.dumps(spec_to_json(spec), allow_nan=False)))


@settings(max_examples=60)
@given(st.one_of(specs(), categorical((), masks=True), one_hot((), masks=True)))
def test_a_spec_comes_back_equal(made: Made) -> None:
    found = through_text(made.ours)
    assert found == made.ours
    assert repr(found).count("\n") == repr(made.ours).count("\n")


TEXT = TextBox(1, 9, frozenset('a"\n☃'))
UNUSUAL = {
    "infinite bounds": Bounded(torch.tensor([-math.inf, -0.0]), torch.tensor([0.1, math.inf])),
    "all bounds infinite": Bounded(-math.inf, math.inf, (3,)),
    "every float32": Bounded(-3.4028234663852886e38, 1e-45, (2,)),
    "all of int64": Bounded(-(2**63), 2**63 - 1, (), dtype=torch.int64),
    "of many shapes": Bounded(0, 1, (2, 3)).expand(4, 2, 3)[:, 0],
    "numbers that differ": MultiCategorical([[2, 3], [4, 5]]),
    "one number": MultiCategorical([2, 3])[0],
    "masked numbers": MultiCategorical([2, 3], mask=torch.tensor([1, 0, 1, 1, 0])),
    "masked vectors": MultiOneHot([2, 3], (4, 5), mask=torch.tensor([1, 0, 1, 1, 0])),
    "text": NonTensor((), space=TEXT),
    "a value": NonTensor((2,), example_data={"a": [1, None, "b"]}),
    "bools": Bounded(False, True, (2,), dtype=torch.bool),
    "no values": Bounded(0, 1, (0, 3)),
    "half": Unbounded((2,), dtype=torch.bfloat16),
    "nothing": Composite(shape=(3,)),
    "a device": Composite(a=OneHot(3), device="cpu"),
}


def test_an_unusual_spec_comes_back_equal() -> None:
    for name, spec in UNUSUAL.items():
        found = through_text(spec)
        assert found == spec, name
        assert found.device == spec.device, name


def test_the_sign_of_a_zero_comes_back() -> None:
    found = through_text(Bounded(torch.tensor([-0.0, 0.0]), 1.0))
    assert found.space.low.signbit().tolist() == [True, False]


def test_a_spec_comes_back_on_another_device() -> None:
    data = {**spec_to_json(Categorical(3))}
    data["spec"]["device"] = "cuda:0"
    assert spec_from_json(data, device="cpu") == Categorical(3)


def test_the_values_are_these() -> None:
    spec = Composite(action=OneHot(2, dtype=torch.int64), state=Bounded(-math.inf, 1, (2,)))
    common = {"device": "cpu", "shape": [2]}
    assert spec_to_json(spec) == {
        "version": 1,
        "spec": {
            "type": "Composite",
            "shape": [],
            "device": None,
            "specs": {
                "action": {"type": "OneHot", "dtype": "int64", "n": 2, **common},
                "state": {"type": "Bounded", "dtype": "float32", "low": "-inf", "high": 1.0}
                | common,
            },
        },
    }


@pytest.mark.parametrize(
    "data",
    [
        None,
        {"version": 2},
        {"version": 1},
        {"version": 1, "spec": {"type": "OneHot"}},
        {"version": 1, "spec": {"type": "os.system", "shape": [], "device": None, "dtype": "int8"}},
        {"version": 1, "spec": {"type": "OneHot", "shape": [2], "device": "cpu", "dtype": "save"}},
        {"version": 1, "spec": {"type": "Composite", "shape": [], "device": None, "specs": [1]}},
    ],
)
def test_other_values_are_refused(data: Any) -> None:
    with pytest.raises(UsageError):
        spec_from_json(data)


def test_a_newer_version_is_refused() -> None:
    with pytest.raises(UsageError) as raised:
        spec_from_json(spec_to_json(NonTensor(())) | {"version": 2})
    error = raised.value
    assert (error.argument, error.expected, error.found) == ("data", 1, 2)


def test_an_example_that_is_not_json_is_refused() -> None:
    example = object()
    with pytest.raises(Unsupported) as raised:
        spec_to_json(NonTensor((), example_data=example))
    assert raised.value.found is example
