"""Specs against TorchRL's of the same name and arguments; test_differences.py has what differs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

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
