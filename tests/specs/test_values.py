"""What values a spec has: drawn, checked, projected and encoded."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch

import datasets_cli
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
)
from datasets_cli.errors import UnknownKey, Unsupported, WrongSize
from datasets_cli.specs import TensorSpec
from datasets_cli.torchrl import BoundedTensorSpec


def test_a_one_hot_vector_is_drawn_by_one_call_of_randint() -> None:
    spec = OneHot(2, dtype=torch.int64)
    torch.manual_seed(0)
    drawn = torch.stack([spec.rand() for _ in range(20)])
    torch.manual_seed(0)
    expected = torch.stack([torch.randint(2, ()) for _ in range(20)])
    assert drawn.argmax(-1).tolist() == expected.tolist()
    assert spec.is_in(drawn)


def test_projecting_clamps_to_the_bounds() -> None:
    spec = BoundedTensorSpec(minimum=-1.0, maximum=1.0, shape=(3,))
    value = torch.tensor([2.0, 0.0, -3.0])
    assert not spec.is_in(value)
    assert spec.project(value).tolist() == [1, 0, -1]
    assert value.tolist() == [2, 0, -3]


def test_a_number_is_encoded_as_a_number_or_a_vector() -> None:
    assert Categorical(3).encode(2).tolist() == 2
    assert OneHot(4).encode(2).tolist() == [False, False, True, False]
    assert OneHot(4).to_numpy(OneHot(4).encode(2)) == 2


def test_a_composite_makes_tensordicts_of_its_batch_size() -> None:
    spec = Composite(a=Bounded(-1, 1, (4,)), b={"c": Unbounded((1,))}).expand(3)
    batch = spec.rand((2,))
    assert batch.batch_size == (2, 3)
    assert batch["b", "c"].shape == (2, 3, 1)
    assert spec.is_in(batch)
    assert not spec.is_in(batch.exclude("a"))


OLD_NAMES = {
    "BinaryDiscreteTensorSpec": "Binary",
    "BoundedTensorSpec": "Bounded",
    "CompositeSpec": "Composite",
    "DiscreteTensorSpec": "Categorical",
    "MultiDiscreteTensorSpec": "MultiCategorical",
    "MultiOneHotDiscreteTensorSpec": "MultiOneHot",
    "OneHotDiscreteTensorSpec": "OneHot",
    "UnboundedContinuousTensorSpec": "UnboundedContinuous",
    "UnboundedDiscreteTensorSpec": "UnboundedDiscrete",
}


def test_a_spec_has_two_names() -> None:
    for old, new in OLD_NAMES.items():
        assert getattr(datasets_cli.torchrl, old) is getattr(datasets_cli.specs, new)
        assert issubclass(getattr(datasets_cli.specs, new), TensorSpec)


def test_a_spec_is_printed_as_on_the_pages() -> None:
    spec = Composite(action=OneHot(2, dtype=torch.int64))
    assert repr(spec) == (
        "Composite(\n"
        "    action: OneHot(\n"
        "        shape=torch.Size([2]),\n"
        "        space=CategoricalBox(n=2),\n"
        "        device=cpu,\n"
        "        dtype=torch.int64,\n"
        "        domain=discrete),\n"
        "    device=None,\n"
        "    shape=torch.Size([]))"
    )


def test_unbounded_is_of_the_class_of_its_element_type() -> None:
    assert type(Unbounded((2,), dtype=torch.int8)) is datasets_cli.specs.UnboundedDiscrete
    assert type(Unbounded((2,))) is datasets_cli.specs.UnboundedContinuous
    assert type(Unbounded((2,)).to(torch.int64)) is datasets_cli.specs.UnboundedDiscrete
    assert isinstance(Unbounded((2,)), Unbounded)


def test_bounds_are_copied() -> None:
    low = torch.zeros(2)
    spec = Bounded(low, 1.0)
    low += 5
    assert spec.low.tolist() == [0, 0]


SPECS = [
    Bounded(-1, 1, (2, 3)),
    Unbounded((2, 3), dtype=torch.uint8),
    Categorical(3, (2,), mask=torch.tensor([True, False, True])),
    OneHot(3, (2, 3), mask=torch.tensor([True, False, True])),
    MultiCategorical([2, 3], (2, 2), mask=torch.tensor([1, 0, 1, 1, 0])),
    MultiOneHot([2, 3], (2, 5), mask=torch.tensor([1, 0, 1, 1, 0])),
    datasets_cli.specs.Binary(3, (2, 3)),
    NonTensor((2,), example_data="a"),
    Composite(a={"b": Categorical(3, (2,))}, shape=(2,)),
]
each_spec = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: type(spec).__name__)


@each_spec
def test_a_copy_is_equal(spec: TensorSpec) -> None:
    for copied in (copy.deepcopy(spec), pickle.loads(pickle.dumps(spec)), spec.clone()):
        assert copied == spec
        assert repr(copied) == repr(spec)


@each_spec
def test_a_spec_of_another_shape_draws_valid_values(spec: TensorSpec) -> None:
    for other in (spec[0], spec[[1, 0]], spec.unsqueeze(0), spec.expand(4, *spec.shape)[1:, :1]):
        for shape in ((), (3,)):
            value = other.rand(shape)
            assert value.shape == (*shape, *other.shape)
            assert other.is_in(value)
            assert other.project(value) is value


@each_spec
def test_an_index_of_a_spec_is_that_of_its_values(spec: TensorSpec) -> None:
    for index in (0, (..., slice(0, 1), slice(None)) if spec.ndim > 1 else -1, [1, 1], None):
        assert spec[index].shape == spec.rand()[index].shape
    with pytest.raises(IndexError):
        spec[2]
    with pytest.raises(IndexError):
        spec[0, 0, 0]
    with pytest.raises(UsageError):
        spec.reshape(7)


def test_a_vector_cannot_be_divided() -> None:
    changes: list[tuple[Callable[[], object], tuple[int, ...]]] = [
        (lambda: OneHot(4)[0], ()),
        (lambda: OneHot(4, (4, 4))[:, 0], (4,)),
        (lambda: OneHot(4, (2, 4)).flatten(0, 1), (8,)),
    ]
    for change, shape in changes:
        with pytest.raises(UsageError) as raised:
            change()
        assert raised.value.found == shape


def test_masked_categories_follow_each_change_of_shape() -> None:
    mask = torch.eye(3, dtype=torch.bool)
    spec = Categorical(3, (3,), mask=mask)
    assert spec.reshape(3, 1)[:, 0].rand((5,)).tolist() == [[0, 1, 2]] * 5
    assert [each.rand().item() for each in spec.unbind(0)] == [0, 1, 2]
    assert OneHot(3, (3, 3), mask=mask)[1].rand().tolist() == [False, True, False]


def test_a_value_chooses_an_item_of_a_tensor() -> None:
    items = torch.arange(8.0).reshape(2, 4)
    assert Categorical(4).index(torch.tensor(2), items).tolist() == [2, 6]
    assert Categorical(4, (2,)).index(torch.tensor([3, 0]), items[0]).tolist() == [3, 0]
    assert OneHot(4).index(OneHot(4).encode(2), items).tolist() == [2, 6]
    spec = MultiOneHot([2, 2])
    assert spec.index(spec.encode([1, 0]), items).tolist() == [[1, 2], [5, 6]]
    with pytest.raises(Unsupported):
        Unbounded().index(torch.zeros(1), items)


def test_all_combinations_of_several_categories_are_listed() -> None:
    spec = Composite(a=Categorical(2), b=MultiCategorical([1, 2]))
    rows = spec.enumerate()
    assert rows.batch_size == (spec.cardinality(),) == (4,)
    assert rows["a"].tolist() == [0, 0, 1, 1]
    assert rows["b"].tolist() == [[0, 0], [0, 1], [0, 0], [0, 1]]
    assert MultiOneHot([1, 2], (5, 3)).enumerate()[:, 0].int().tolist() == [[1, 1, 0], [1, 0, 1]]
    for uncounted in (Unbounded(), Bounded(0, 1, (2,)), NonTensor()):
        with pytest.raises(Unsupported):
            uncounted.enumerate()
    with pytest.raises(WrongSize) as raised:
        datasets_cli.specs.Binary(99).enumerate()
    assert (raised.value.expected, raised.value.found) == (20, 99)


def test_entries_of_a_composite_are_found_by_nested_names() -> None:
    spec = Composite(a={"b": {"c": OneHot(2)}})
    spec["a", "d"] = Unbounded()
    assert spec["a"]["b"]["c"] == spec["a", "b", "c"] == spec.get(("a", "b", "c")) == OneHot(2)
    assert spec.keys(True, True) == [("a", "b", "c"), ("a", "d")]
    assert ("a", "d") in spec and ("a", "x") not in spec and spec.get("x") is None
    for key, named in ((("a", "b", "c", "e"), "c"), ("x", "x")):
        with pytest.raises(UnknownKey) as raised:
            spec[key]
        assert raised.value.key == named


@pytest.mark.parametrize(
    ("make", "kind", "key", "found"),
    [
        (lambda: Composite(a=OneHot(2), shape=(3,)), WrongSize, "a", (2,)),
        (lambda: Composite(a=3), UsageError, "a", 3),
        (lambda: Composite({}, {}), UsageError, None, None),
        (
            lambda: Composite(a=OneHot(2, device="meta"), device="cpu"),
            UsageError,
            "a",
            torch.device("meta"),
        ),
    ],
)
def test_a_composite_of_specs_that_do_not_fit_is_refused(
    make: Callable[[], Composite], kind: type[UsageError], key: str | None, found: object
) -> None:
    with pytest.raises(kind) as raised:
        make()
    assert (raised.value.key, raised.value.found) == (key, found)


def test_a_composite_encodes_values_of_an_environment() -> None:
    spec = Composite(a=OneHot(3), b={"c": Unbounded((1,))})
    value = spec.encode({"a": 1, "b": {"c": 2.5}})
    assert value["a"].tolist() == [False, True, False] and value["b", "c"].item() == 2.5
    assert spec.to_numpy(value) == {"a": 1, "b": {"c": 2.5}}
    with pytest.raises(UnknownKey) as raised:
        spec.encode({"x": 1})
    assert (raised.value.key, raised.value.expected) == ("x", ["a", "b"])


def test_errors_of_checks_name_the_entry() -> None:
    spec = Composite(a={"b": Unbounded()})
    with pytest.raises(TypeError, match=r"\('a', 'b'\)"):
        spec.type_check(spec.to(torch.float64).zero())
    with pytest.raises(AssertionError):
        spec.assert_is_in(spec.zero().exclude("a"))
    with pytest.raises(UnknownKey) as raised:
        spec.project(spec.zero().exclude("a"))
    assert raised.value.key == "a"


@each_spec
def test_a_spec_moves_to_another_device(spec: TensorSpec) -> None:
    moved = spec.to("meta")
    assert moved.device == torch.device("meta")
    assert moved.shape == spec.shape and moved != spec
    assert spec.cpu().device == torch.device("cpu")
    with pytest.raises(UsageError) as raised:
        spec.to("nowhere")
    assert (raised.value.argument, raised.value.found) == ("device", "nowhere")
