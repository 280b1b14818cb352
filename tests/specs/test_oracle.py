"""Specs beside TorchRL's and gymnasium's."""

from __future__ import annotations

import inspect
import json
import re
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import Space, spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from minari.serialization import deserialize_space, serialize_space
from tensordict import NonTensorData, TensorDict

import datasets_cli as ours
from datasets_cli import (
    Bounded,
    Composite,
    MultiOneHot,
    NonTensor,
    OneHot,
    UsageError,
    spec_from_gymnasium,
)
from datasets_cli.errors import Unsupported, install_extra
from datasets_cli.specs import TensorSpec
from datasets_cli.specs.gymnasium_spaces import build, describe
from tests.support.refusals import refused
from tests.support.spec_pairs import (
    Made,
    alike,
    batches,
    binary,
    bounded,
    categorical,
    composites,
    draw_alike,
    drawn,
    leaves,
    multi,
    one_hot,
    printed,
    same,
    specs,
    without,
)

quick = settings(max_examples=25)


@quick
@given(specs(), batches)
def test_the_same_seed_draws_the_same_values(made: Made, shape: tuple[int, ...]) -> None:
    assert draw_alike(made.ours, made.theirs, shape)


@quick
@given(st.one_of(categorical((), masks=True), one_hot((), masks=True)), batches)
def test_masked_values_are_drawn_the_same(made: Made, shape: tuple[int, ...]) -> None:
    mine = drawn(made.ours, shape)
    assert same(mine, drawn(made.theirs, shape))
    assert made.ours.is_in(mine)


@quick
@given(specs(), batches)
def test_zeros_and_ones_are_the_same(made: Made, shape: tuple[int, ...]) -> None:
    size = torch.Size(shape)
    assert same(made.ours.zero(size), made.theirs.zero(size))
    if made.kind != "Composite":
        assert same(made.ours.one(size), made.theirs.one(size))


@st.composite
def near_values(draw: Any, kind: Any) -> tuple[Made, torch.Tensor]:
    """A spec, and whole numbers of its shape and dtype, some in it and some not."""
    made = draw(kind)
    shape = (*draw(batches), *made.ours.shape)
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    spread = draw(st.sampled_from([1, 3, 12]))
    low = 0 if made.ours.dtype == torch.uint8 else -spread // 3
    return made, torch.from_numpy(rng.integers(low, spread, shape)).to(made.ours.dtype)


@quick
@given(near_values(st.one_of(bounded(()), categorical(()), multi(()), binary(()))))
def test_the_same_numbers_are_in_it(pair: tuple[Made, torch.Tensor]) -> None:
    made, value = pair
    if "Hot" in made.kind:
        value = (value > 0).to(made.ours.dtype)
    assert made.ours.is_in(value) is bool(made.theirs.is_in(value))


@quick
@given(one_hot(()), st.integers(0, 999))
def test_the_same_vectors_are_in_it(made: Made, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    value = (torch.rand((2, *made.ours.shape), generator=rng) < 0.5).to(made.ours.dtype)
    assert made.ours.is_in(value) is bool(made.theirs.is_in(value))


numbers = multi(()).filter(lambda made: made.kind == "MultiCategorical")


@quick
@given(near_values(st.one_of(bounded(()), categorical(()), numbers, binary(()))))
def test_numbers_are_projected_to_the_same(pair: tuple[Made, torch.Tensor]) -> None:
    made, value = pair
    assert same(made.ours.project(value.clone()), made.theirs.project(value.clone()))


@quick
@given(leaves())
def test_encode_inverts_to_numpy(made: Made) -> None:
    value = drawn(made.ours)
    array = made.ours.to_numpy(value)
    assert np.array_equal(array, made.theirs.to_numpy(value))
    assert same(made.ours.encode(array), made.theirs.encode(array))
    assert same(made.ours.encode(array), value)


@quick
@given(leaves().filter(lambda made: made.kind != "MultiCategorical" or made.ours.ndim == 1))
def test_the_printed_form_is_torchrls(made: Made) -> None:
    assert printed(made.ours) == printed(made.theirs)


@quick
@given(specs(), st.integers(1, 3))
def test_expanding_and_stacking_are_the_same(made: Made, size: int) -> None:
    shape = (size, *made.ours.shape)
    assert alike(made.ours.expand(shape), made.theirs.expand(shape))
    assert alike(made.ours.expand(*shape), made.theirs.expand(*shape))
    stacked = torch.stack([made.ours] * size, 0)
    assert alike(stacked, torch.stack([made.theirs] * size, 0))
    assert stacked == made.ours.expand(shape)


@quick
@given(without("MultiCategorical"))
def test_dimensions_are_added_and_removed_the_same(made: Made) -> None:
    mine, other = made.ours.expand(4, *made.ours.shape), made.theirs.expand(4, *made.theirs.shape)
    assert alike(mine.unsqueeze(0), other.unsqueeze(0))
    assert mine.unsqueeze(0).squeeze(0) == mine
    assert alike(mine.unflatten(0, (2, 2)), other.unflatten(0, (2, 2)))
    assert mine.unflatten(0, (2, 2)).flatten(0, 1) == mine
    reshaped = mine.reshape(2, 2, *made.ours.shape)
    assert alike(reshaped, other.reshape(2, 2, *made.theirs.shape))
    assert reshaped == mine.view(2, 2, *made.ours.shape)


INDICES = (0, -1, slice(1, 3), torch.tensor([2, 0]), (slice(None), 1), (slice(None), slice(0, 1)))


@pytest.mark.parametrize("index", INDICES, ids=str)
@settings(max_examples=6)
@given(made=specs())
def test_indexing_is_the_same(made: Made, index: Any) -> None:
    shape = (4, 2, *made.ours.shape)
    assert alike(made.ours.expand(shape)[index], made.theirs.expand(shape)[index])


@quick
@given(specs())
def test_unbinding_is_the_same(made: Made) -> None:
    shape = (3, *made.ours.shape)
    mine, other = made.ours.expand(shape).unbind(0), made.theirs.expand(shape).unbind(0)
    assert all(alike(*pair) for pair in zip(mine, other, strict=True))
    assert mine[0] == made.ours


@quick
@given(without("MultiCategorical"), st.sampled_from((torch.float64, torch.float32)))
def test_element_types_change_the_same(made: Made, dtype: torch.dtype) -> None:
    assert alike(made.ours.to(dtype), made.theirs.to(dtype))


@quick
@given(st.tuples(*[st.one_of(categorical(()), one_hot(()), multi(()), bounded(()))] * 2))
def test_the_same_specs_are_equal(pair: tuple[Made, Made]) -> None:
    first, second = pair
    assert (first.ours == second.ours) is bool(first.theirs == second.theirs)
    assert first.ours == first.ours.clone()


@quick
@given(composites(), composites())
def test_the_same_composites_are_equal(first: Made, second: Made) -> None:
    try:
        expected = bool(first.theirs == second.theirs)
    except AttributeError:  # a Binary and a MultiCategorical, as test_differences.py shows
        expected = False
    assert (first.ours == second.ours) is expected
    assert first.ours == first.ours.clone()
    assert [*first.ours.keys(True, True)] == [*first.theirs.keys(True, True)]


@quick
@given(st.one_of(categorical(()), one_hot(())))
def test_the_values_are_listed_the_same(made: Made) -> None:
    assert made.ours.cardinality() == made.theirs.cardinality()
    assert same(made.ours.enumerate(), made.theirs.enumerate())


# Specs from gymnasium's spaces.


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
    with refused(Unsupported, argument="one_hot", found=1):
        spec_from_gymnasium(spaces.Discrete(3, start=1), one_hot=True)


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
    with refused(Unsupported, argument="dtype" if isinstance(space, spaces.Box) else "space"):
        spec_from_gymnasium(space)


def test_a_missing_gymnasium_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    described = describe(spaces.Discrete(2))
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with refused(UsageError, advice=install_extra("collect")):
        build(described)


def test_text_is_checked_character_by_character() -> None:
    spec = spec_from_gymnasium(spaces.Text(3, charset="ab"))
    assert [spec.is_in(text) for text in ("ab", "abba", "", "ac", 3)] == [True, *[False] * 4]
    assert spec.is_in(NonTensorData("ab"))
    assert spec.is_in(spec.rand((2,)))
    with pytest.raises(UsageError) as raised:
        spec.project("xyz")
    assert isinstance(spec, NonTensor)
    assert (raised.value.expected, raised.value.found) == (spec.space, "xyz")


# What classes of specs have in TorchRL, and the sentence of each name that is not here.


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchrl.data import tensor_specs as theirs

SPECS = [
    Made("Bounded", {"low": 0.0, "high": 1.0, "shape": (2,)}),
    Made("Unbounded", {"shape": (2,)}),
    Made("UnboundedContinuous", {"shape": (2,)}),
    Made("UnboundedDiscrete", {"shape": (2,)}),
    Made("Categorical", {"n": 3}),
    Made("OneHot", {"n": 3}),
    Made("MultiCategorical", {"nvec": [2, 3]}),
    Made("MultiOneHot", {"nvec": [2, 3]}),
    Made("Binary", {"n": 2}),
    Made("NonTensor", {"shape": (2,)}),
    Made("Composite", {"a": Made("Categorical", {"n": 2})}),
]
each_spec = pytest.mark.parametrize("made", SPECS, ids=lambda made: made.kind)


def defaults(function: Any) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {each.name: each.default for each in parameters if each.default is not each.empty}


def methods(made: Made) -> Iterator[tuple[str, Any]]:
    """Give each public name of TorchRL's spec that is a method, with it."""
    for name in dir(made.theirs):
        method = inspect.getattr_static(type(made.theirs), name, None)
        if name[0] != "_" and inspect.isfunction(method):
            yield name, method


@each_spec
def test_every_keyword_is_taken_at_torchrls_default(made: Made) -> None:
    words = defaults(getattr(theirs, made.kind).__init__)
    assert len(words) >= 2
    for word, default in words.items():
        arguments = {word: default, **made.arguments}
        assert Made(made.kind, arguments).ours == made.ours, word


MISSING = {
    "rand_update",
    "zeros_update",
    "ones_update",
    "refine_names",
    "separates",
    "make_neg_dim",
    "set_provisional_n",
    "n",
    "implements_for_spec",
    "to_one_hot",
    "to_one_hot_spec",
    "to_categorical",
    "to_categorical_spec",
    "update_mask",
}


@each_spec
def test_no_other_attribute_of_torchrls_spec_is_missing(made: Made) -> None:
    public = {name for name in dir(type(made.theirs)) if re.match("[a-z]", name)}
    assert {name for name in public if not hasattr(made.ours, name)} <= MISSING


@each_spec
def test_every_keyword_of_a_method_is_one_of_ours(made: Made) -> None:
    for name, method in methods(made):
        if hasattr(made.ours, name):
            parameters = inspect.signature(getattr(made.ours, name)).parameters
            takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
            assert takes_all or defaults(method).keys() <= parameters.keys(), name


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("Composite", {"data_cls": dict}),
    ("Composite", {"step_mdp_static": True}),
    ("Composite", {"batch_size": (2,), "shape": (2,)}),
    ("Composite", {"names": ["time"]}),
    ("NonTensor", {"batched": True}),
    ("NonTensor", {"feature_dims": 1}),
    ("MultiCategorical", {"nvec": [2], "remove_singleton": 3}),
]


@pytest.mark.parametrize(("kind", "arguments"), WRONG)
def test_unsupported_arguments_of_specs_are_refused(kind: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        getattr(ours.specs, kind)(**arguments)


def test_a_batch_size_is_the_shape() -> None:
    assert ours.Composite(batch_size=(2,)).shape == (2,) == torch.zeros(2).shape
