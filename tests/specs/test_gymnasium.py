"""Specs from gymnasium's spaces and back."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import Space, spaces
from minari.serialization import deserialize_space, serialize_space
from tensordict import NonTensorData, TensorDict

from datasets_cli import (
    Bounded,
    Categorical,
    Composite,
    MultiOneHot,
    NonTensor,
    OneHot,
    UsageError,
    spec_from_gymnasium,
    spec_to_gymnasium,
)
from datasets_cli.errors import Unsupported, install_extra
from datasets_cli.specs import TensorSpec
from datasets_cli.specs.gymnasium_spaces import build, describe

INFINITE = np.array([-np.inf, -1.0], np.float32)
SPACES: dict[str, Space[Any]] = {
    "box": spaces.Box(-1, 2, (3, 2), np.float64),
    "partly infinite": spaces.Box(INFINITE, -INFINITE),
    "infinite": spaces.Box(-np.inf, np.inf, (2,), np.float32),
    "one number": spaces.Box(0, 1, (), np.float32),
    "frames": spaces.Box(0, 255, (2, 2, 3), np.uint8),
    "whole numbers": spaces.Box(-3, 9, (2,), np.int64),
    "discrete": spaces.Discrete(5),
    "discrete from 2": spaces.Discrete(5, start=2),
    "discrete from -1": spaces.Discrete(3, start=-1),
    "several": spaces.MultiDiscrete([2, 3, 4]),
    "rows of several": spaces.MultiDiscrete([[2, 3], [4, 5]]),
    "bits": spaces.MultiBinary(4),
    "rows of bits": spaces.MultiBinary((2, 3)),
    "text": spaces.Text(9, min_length=2, charset="abc☃"),
    "dict": spaces.Dict(b=spaces.Discrete(2), a=spaces.Dict(c=spaces.Box(0, 1, (2,)))),
    "tuple": spaces.Tuple((spaces.Discrete(2), spaces.Tuple((spaces.MultiBinary(2),)))),
    "empty": spaces.Dict({}),
}


def value_of(spec: TensorSpec, sample: Any) -> Any:
    """Return a sample of a space as a value of its spec."""
    if isinstance(spec, Composite):
        items = sample.items() if isinstance(sample, dict) else enumerate(sample)
        return TensorDict({str(name): value_of(spec[str(name)], x) for name, x in items})
    return spec.encode(sample)


def sample_of(space: Space[Any], value: Any) -> Any:
    """Return what ``to_numpy`` gives with tuples for the spaces that are tuples."""
    if isinstance(space, spaces.Tuple):
        return tuple(sample_of(item, value[str(n)]) for n, item in enumerate(space))
    if isinstance(space, spaces.Dict):
        return {name: sample_of(item, value[name]) for name, item in space.items()}
    return value


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_a_space_and_its_spec_have_the_same_values(space: Space[Any]) -> None:
    spec = spec_from_gymnasium(space)
    assert spec_to_gymnasium(spec) == space
    space.seed(0)
    for _ in range(5):
        assert spec.is_in(value_of(spec, space.sample()))
        assert sample_of(space, spec.to_numpy(spec.rand())) in space
    # As Minari describes it.
    assert describe(space) == json.loads(serialize_space(space))
    assert build(describe(space)) == space == deserialize_space(json.dumps(describe(space)))


@pytest.mark.parametrize(
    ("space", "spec"),
    [
        (spaces.Discrete(3), OneHot(3, dtype=torch.int64)),
        (spaces.MultiDiscrete([2, 3]), MultiOneHot([2, 3], dtype=torch.int64)),
    ],
)
def test_categories_become_vectors_with_one_hot(space: Space[Any], spec: TensorSpec) -> None:
    assert spec_from_gymnasium(space, one_hot=True) == spec
    assert spec_to_gymnasium(spec) == space
    with pytest.raises(Unsupported) as raised:
        spec_from_gymnasium(spaces.Discrete(3, start=1), one_hot=True)
    assert (raised.value.argument, raised.value.found) == ("one_hot", 1)


def test_a_multi_discrete_space_with_a_start_is_a_bounded_spec() -> None:
    spec = spec_from_gymnasium(spaces.MultiDiscrete([2, 3], start=[1, -1]))
    assert spec == Bounded(torch.tensor([1, -1]), torch.tensor([2, 1]), dtype=torch.int64)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Sequence(spaces.Discrete(2)),
        spaces.Graph(spaces.Discrete(2), None),
        spaces.OneOf([spaces.Discrete(2)]),
        spaces.Box(0, 9, (2,), np.uint16),
        spaces.Dict({"a": spaces.Dict({"b": spaces.Sequence(spaces.Discrete(2))})}),
    ],
    ids=str,
)
def test_a_space_without_an_equivalent_spec_is_refused(space: Space[Any]) -> None:
    with pytest.raises(Unsupported) as raised:
        spec_from_gymnasium(space)
    assert raised.value.argument == ("dtype" if isinstance(space, spaces.Box) else "space")


@pytest.mark.parametrize(
    "spec",
    [
        NonTensor((), example_data=3),
        NonTensor((2,), example_data="a"),
        Categorical(2, mask=torch.tensor([True, False])),
        Bounded(0, 1, (2,), dtype=torch.bfloat16),
    ],
    ids=str,
)
def test_a_spec_without_an_equivalent_space_is_refused(spec: TensorSpec) -> None:
    with pytest.raises(Unsupported) as raised:
        spec_to_gymnasium(Composite(a=spec))
    assert raised.value.argument == "spec"


def test_a_missing_gymnasium_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(UsageError) as raised:
        spec_to_gymnasium(Categorical(2))
    assert raised.value.advice == install_extra("collect")


def test_text_is_checked_character_by_character() -> None:
    spec = spec_from_gymnasium(spaces.Text(3, charset="ab"))
    assert [spec.is_in(text) for text in ("ab", "abba", "", "ac", 3)] == [True, *[False] * 4]
    assert spec.is_in(NonTensorData("ab"))
    assert spec.is_in(spec.rand((2,)))
    with pytest.raises(UsageError) as raised:
        spec.project("xyz")
    assert isinstance(spec, NonTensor)
    assert (raised.value.expected, raised.value.found) == (spec.space, "xyz")
