"""Specs and values: operations on specs, and which values belong to one."""

from __future__ import annotations

import copy
import operator
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import datasets_cli
import datasets_cli as ours
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
from datasets_cli.errors import UnknownKey, Unsupported, WrongRows, WrongSize
from datasets_cli.specs import TensorSpec
from datasets_cli.torchrl import BoundedTensorSpec
from tests.support.refusals import refused
from tests.support.spec_pairs import (
    Made,
    alike,
    batches,
    binary,
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
)

# What values a spec has: drawn, checked, projected and encoded.


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
        with refused(UsageError, found=shape):
            change()


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
    with refused(WrongSize, expected=20, found=99):
        datasets_cli.specs.Binary(99).enumerate()


def test_entries_of_a_composite_are_found_by_nested_names() -> None:
    spec = Composite(a={"b": {"c": OneHot(2)}})
    spec["a", "d"] = Unbounded()
    assert spec["a"]["b"]["c"] == spec["a", "b", "c"] == spec.get(("a", "b", "c")) == OneHot(2)
    assert spec.keys(True, True) == [("a", "b", "c"), ("a", "d")]
    assert ("a", "d") in spec and ("a", "x") not in spec and spec.get("x") is None
    for key, named in ((("a", "b", "c", "e"), "c"), ("x", "x")):
        with refused(UnknownKey, key=named):
            spec[key]


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
    with refused(kind, key=key, found=found):
        make()


def test_a_composite_encodes_values_of_an_environment() -> None:
    spec = Composite(a=OneHot(3), b={"c": Unbounded((1,))})
    value = spec.encode({"a": 1, "b": {"c": 2.5}})
    assert value["a"].tolist() == [False, True, False] and value["b", "c"].item() == 2.5
    assert spec.to_numpy(value) == {"a": 1, "b": {"c": 2.5}}
    with refused(UnknownKey, key="x", expected=["a", "b"]):
        spec.encode({"x": 1})


def test_errors_of_checks_name_the_entry() -> None:
    spec = Composite(a={"b": Unbounded()})
    with pytest.raises(TypeError, match=r"\('a', 'b'\)"):
        spec.type_check(spec.to(torch.float64).zero())
    with pytest.raises(AssertionError):
        spec.assert_is_in(spec.zero().exclude("a"))
    with refused(UnknownKey, key="a"):
        spec.project(spec.zero().exclude("a"))


@each_spec
def test_a_spec_moves_to_another_device(spec: TensorSpec) -> None:
    moved = spec.to("meta")
    assert moved.device == torch.device("meta")
    assert moved.shape == spec.shape and moved != spec
    assert spec.cpu().device == torch.device("cpu")
    with refused(UsageError, argument="device", found="nowhere"):
        spec.to("nowhere")


# What is done to a Composite and to masks, against TorchRL's.


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchrl.data import tensor_specs as theirs

quick = settings(max_examples=25)
KEYS = ("a", "b", ("b", "c"), "d")
some_keys = st.lists(st.sampled_from(KEYS), min_size=1, unique=True)


def outcome(change: Callable[[Any], Any], spec: Any) -> Any:
    """Return what is done to a spec, or the kind of exception that it raises."""
    try:
        return change(spec)
    except (KeyError, ValueError, RuntimeError, TypeError, AttributeError, IndexError) as error:
        return "refused" if not isinstance(error, KeyError) else "no key"


def keep_free(made: Made, keys: list[Any]) -> tuple[Any, Any]:
    """Return both Composites with the places of some keys kept free."""
    pair = made.ours, made.theirs
    for spec in pair:
        for key in keys:
            if key in spec.keys(True):  # not inside of what is free
                spec[key] = None
    return pair


@quick
@given(composites(), some_keys, batches)
def test_a_key_can_be_without_a_spec(made: Made, keys: list[Any], shape: tuple[int, ...]) -> None:
    mine, other = keep_free(made, keys)
    assert draw_alike(mine, other, shape)
    assert same(mine.zero(shape), other.zero(torch.Size(shape)))
    assert [*mine.keys(True)] == [*other.keys(True)] and len(mine) == len(other)
    assert all((mine[key] is None) is (other[key] is None) for key in other.keys(True))
    assert mine.is_in(other.rand()) and mine.project(mine.rand()) is not None
    assert mine == mine.clone() == copy.deepcopy(mine) == pickle.loads(pickle.dumps(mine))
    assert mine != made.ours
    for changed in (mine.expand(2, *mine.shape), mine.unsqueeze(0), mine.to(torch.float64)):
        assert changed.keys(True) == mine.keys(True)


@quick
@given(leaves().filter(lambda made: made.kind != "MultiCategorical" or made.ours.ndim == 1))
def test_a_key_without_a_spec_is_printed(leaf: Made) -> None:
    made = Made("Composite", {"observation": leaf, "action": None})
    assert printed(made.ours) == printed(made.theirs)
    assert printed(made.ours.empty()) == printed(made.theirs.empty())


@quick
@given(composites(), some_keys)
def test_entries_are_deleted_and_popped(made: Made, keys: list[Any]) -> None:
    mine, other = made.ours, made.theirs
    for key in [*keys, "missing"]:
        remove = operator.methodcaller("__delitem__", key)
        removed = [outcome(remove, spec) for spec in (mine, other)]
        assert removed[0] == removed[1] and [*mine.keys(True)] == [*other.keys(True)]
    assert mine.pop("missing", 3) == other.pop("missing", 3) == 3
    for key in mine.keys(True, True):
        assert alike(mine.pop(key), other.pop(key))
    assert mine.is_empty(recurse=True) and not made.ours.is_empty()
    assert made.ours.pop("b") == made.ours["b"]  # a KeyError in TorchRL


@quick
@given(leaves())
def test_entries_are_updated(leaf: Made) -> None:
    made = Made("Composite", {"a": leaf, "b": Made("Composite", {"c": leaf, "e": leaf})})
    mine, other = made.ours, made.theirs
    for spec, new in ((mine, leaf.ours), (other, leaf.theirs)):
        assert spec.update({"e": new, "b": {"f": new, "c": None}}) is spec
        assert spec.set("h", new) is spec
    assert [*mine.keys(True)] == [*other.keys(True)] and mine["b", "c"] is None
    assert alike(mine["b", "f"], other["b", "f"]) and alike(mine["h"], other["h"])


NAMES = st.permutations([None, None, "time", "env", "agent"]).map(lambda names: names[:3])
CHANGES: list[Callable[[Any], Any]] = [
    lambda spec: spec,
    lambda spec: spec.clone(),
    lambda spec: spec.to(torch.float64),
    lambda spec: spec[0],
    lambda spec: spec[:, 0],
    lambda spec: spec[1:],
    lambda spec: spec.expand(5, 2, 1, 3),
    lambda spec: spec.unsqueeze(1),
    lambda spec: spec.squeeze(1),
    lambda spec: spec.squeeze(),
    lambda spec: spec.unbind(0)[1],
    lambda spec: torch.stack([spec, spec], 1),
    lambda spec: spec.reshape(6),
]


@quick
@given(NAMES, st.sampled_from(CHANGES))
def test_names_of_dimensions_are_kept(names: Any, change: Callable[[Any], Any]) -> None:
    made = Made("Unbounded", {"shape": (2, 1, 3, 4)})
    inner = Made("Composite", {"b": made, "shape": (2, 1, 3)})
    both = Made("Composite", {"a": inner, "c": made, "shape": (2, 1, 3), "names": names})
    mine, other = change(both.ours), change(both.theirs)
    assert mine.names == other.names and mine["a"].names == other["a"].names
    assert mine.rand().names == other.rand().names and mine.shape == other.shape
    assert mine.rand((2,)).names == [None, *mine.names]
    with refused(WrongSize, argument="names", expected=3, found=1):
        both.ours.names = ["time"]


@quick
@given(specs(), st.lists(st.integers(-1, 4), min_size=1, max_size=4))
def test_items_of_a_dimension_are_selected(made: Made, places: list[int]) -> None:
    shape, index = (4, *made.ours.shape), torch.tensor(places, dtype=torch.int64)
    mine, other = (
        outcome(lambda spec: torch.index_select(spec, 0, index), spec)
        for spec in (made.ours.expand(shape), made.theirs.expand(shape))
    )
    if "refused" in (mine, other):
        assert mine == other == "refused"
    else:
        assert alike(mine, other) and mine.shape == (len(places), *made.ours.shape)


@quick
@given(specs(), st.sampled_from(("a", None)))
def test_element_types_are_checked_by_key(made: Made, key: str | None) -> None:
    key = key if made.kind == "Composite" else None
    value = drawn(made.theirs)
    value = value if key is None else value[key]
    made.ours.type_check(value, key)
    made.theirs.type_check(value, key)
    for spec in (made.ours, made.theirs):
        with pytest.raises(TypeError):
            spec.type_check(value.to(torch.complex64), key)


def test_the_key_is_named() -> None:
    with pytest.raises(TypeError, match="reward"):
        Unbounded((1,)).type_check(torch.zeros(1).double(), "reward")


@quick
@given(st.one_of(categorical(()), one_hot(())), st.data())
def test_masks_are_replaced(made: Made, data: Any) -> None:
    n = made.ours.n
    mask = torch.tensor(data.draw(st.lists(st.booleans(), min_size=n, max_size=n).filter(any)))
    mask = mask.reshape(1, n) if data.draw(st.booleans()) else mask
    mine, other = made.ours, made.theirs
    for each in (mask, None):
        mine.update_mask(each)
        other.update_mask(each)
        if each is None or mine.dtype == torch.bool or made.kind == "Categorical":
            assert draw_alike(mine, other, (3,))
        assert mine.is_in(mine.rand((9,)))
    with refused(WrongSize, argument="mask", found=(n + 1,)):
        mine.update_mask(torch.ones(n + 1, dtype=torch.bool))


def test_masks_of_several_categories_are_replaced() -> None:
    mask = torch.tensor([True, False, False, True, True])
    for spec in (ours.MultiCategorical([2, 3]), ours.MultiOneHot([2, 3])):
        spec.update_mask(mask)
        numbers = spec.to_categorical(spec.rand((99,)))
        assert set(map(tuple, numbers.tolist())) == {(0, 1), (0, 2)}
        assert len(spec.enumerate(use_mask=True)) == 2 < len(spec.enumerate()) == 6
        with refused(UsageError, argument="mask"):
            spec.update_mask(torch.zeros(5, dtype=torch.bool))


@quick
@given(st.one_of(categorical(()), one_hot(()), multi(())), batches)
def test_numbers_and_vectors_convert_to_each_other(made: Made, shape: tuple[int, ...]) -> None:
    mine, other = made.ours, made.theirs
    assert alike(mine.to_one_hot_spec(), other.to_one_hot_spec())
    assert alike(mine.to_categorical_spec(), other.to_categorical_spec())
    value = drawn(mine, shape).long() if "Hot" not in made.kind else drawn(mine, shape)
    assert same(mine.to_one_hot(value), other.to_one_hot(value))
    assert same(mine.to_categorical(value), other.to_categorical(value))
    with pytest.raises(AssertionError):
        mine.to_categorical(torch.full_like(value, 9).long(), safe=True)


@pytest.mark.parametrize(("kind", "shape"), [("MultiOneHot", (2, 7)), ("MultiCategorical", (2, 2))])
def test_masks_of_several_items_have_the_shape_that_torchrl_has(kind: str, shape: Any) -> None:
    mask = torch.ones(2, 7, dtype=torch.bool)
    mask[0, 0] = mask[1, 5] = False
    made = [getattr(module, kind)((3, 4), shape, mask=mask) for module in (ours, theirs)]
    for change in (
        *(lambda spec: spec, lambda spec: spec.clone(), lambda spec: spec.unsqueeze(0)),
        *(lambda spec: spec.unbind(0)[1], lambda spec: spec.to_categorical_spec()),
    ):
        one, other = map(change, made)
        assert one.mask.tolist() == other.mask.tolist() and one.mask.shape[-1] == 7
        assert one.is_in(other.rand((50,))) and other.is_in(one.rand((50,)))
    for spec in made:
        spec.update_mask(mask.flip(0))
    assert made[0].mask.tolist() == made[1].mask.tolist() == mask.flip(0).tolist()


@pytest.mark.parametrize("key", ["a", ("a",), ("b",), ("b", "c"), ("b", ("c",)), "x", ("x",)])
@pytest.mark.parametrize("nested", [(), (True,), (True, True)])
def test_keys_contain_the_same_keys_as_torchrls(key: Any, nested: Any) -> None:
    found = []
    for module in (ours, theirs):
        inner = module.Composite(c=module.Unbounded(()))
        keys = module.Composite(a=module.Unbounded(()), b=inner).keys(*nested)
        found.append(key in keys)
    assert found[0] == found[1]


def test_bools_are_projected_between_their_bounds() -> None:
    spec = Bounded([False, True, False], [True, True, False], dtype=torch.bool)
    for value in ([False, False, False], [True, True, True]):
        found = spec.project(torch.tensor(value))
        assert found.tolist() == [value[0], True, False] and spec.is_in(found)


@quick
@given(leaves(), st.booleans())
def test_arrays_of_other_dimensions_are_encoded(made: Made, is_flat: bool) -> None:
    array = np.asarray(made.theirs.to_numpy(drawn(made.theirs)))
    array = array.reshape(-1) if is_flat else array[None]
    mine = made.ours.encode(array)
    if "Hot" not in made.kind:
        made.ours.memoize_encode()
        assert same(mine, made.theirs.encode(array)) and same(made.ours.encode(array), mine)
    assert made.ours.is_in(mine) and mine.numel() == made.ours.shape.numel()


def test_rows_are_not_taken_for_columns() -> None:
    with refused(WrongRows, expected=(2, 3), found=(3, 2)):
        Unbounded((2, 3)).encode(np.zeros((3, 2)))
    assert Unbounded((2, 2, 3)).encode(np.arange(12).reshape(4, 3))[1, 0, 0] == 6


LOCKED: list[tuple[str, Callable[[Any], Any]]] = [
    ("put in", lambda spec: spec.__setitem__("new", None)),
    ("put in nested", lambda spec: spec.__setitem__(("b", "new"), None)),
    ("set", lambda spec: spec.set("new", None)),
    ("update", lambda spec: spec.update({"new": None})),
    ("update nested", lambda spec: spec.update({"b": {"new": None}})),
    ("shape", lambda spec: setattr(spec, "shape", ())),
    ("clone", lambda spec: spec.clone().is_locked),
    ("expand", lambda spec: spec.expand(2, *spec.shape).is_locked),
    ("pickle", lambda spec: pickle.loads(pickle.dumps(spec)).is_locked),
    ("clear", lambda spec: spec.clear_device_().device),
    ("unlock", lambda spec: (spec.unlock_().is_locked, spec["b"].is_locked)),
]


@pytest.mark.parametrize(
    "change", [change for _, change in LOCKED], ids=[name for name, _ in LOCKED]
)
@settings(max_examples=4)
@given(made=composites(), recurse=st.sampled_from([None, False]))
def test_a_locked_composite_is_not_changed(
    made: Made, change: Callable[[Any], Any], recurse: bool | None
) -> None:
    mine, other = made.ours.lock_(recurse), made.theirs.lock_(recurse)
    assert mine.is_locked and mine["b"].is_locked is other["b"].is_locked
    done = [outcome(change, spec) for spec in (mine, other)]
    assert done[0] == done[1] or (done[0] is mine and done[1] is other)
    assert [*mine.keys(True)] == [*other.keys(True)] and mine.is_locked is other.is_locked


def test_devices_are_cleared() -> None:
    made = Made("Composite", {"a": Made("Composite", {"device": "cpu"}), "device": "cpu"})
    for spec in (made.ours, made.theirs):
        assert spec.clear_device_() is spec and (spec.device, spec["a"].device) == (None, None)
        spec["b"] = type(spec)(device="meta")


def test_a_shape_is_that_of_nested_ones() -> None:
    made = Made("Composite", {"a": Made("Composite", {"b": Made("Unbounded", {"shape": (4, 3)})})})
    for spec in (made.ours, made.theirs):
        spec.shape = torch.Size((4,))
        assert (spec.shape, spec["a"].shape, spec.rand()["a"].shape) == ((4,), (4,), (4,))
        with pytest.raises(ValueError):
            spec.shape = torch.Size((5,))


@quick
@given(specs())
def test_torchrls_specs_become_ours_in_a_composite(made: Made) -> None:
    assert Composite(a=made.theirs, shape=made.ours.shape[:0])["a"] == made.ours
    if made.kind == "Composite":
        assert Composite(made.theirs, shape=made.ours.shape) == made.ours


@quick
@given(st.one_of(categorical((), masks=True), one_hot((), masks=True), binary(())))
def test_masks_come_with_torchrls_specs(made: Made) -> None:
    assert Composite(a=made.theirs)["a"] == made.ours


def test_only_specs_are_entries_of_a_composite() -> None:
    stack = torch.stack([theirs.OneHot(2), theirs.OneHot(3)])
    choice = theirs.Choice([theirs.Categorical(2), theirs.Categorical(3)])
    for thing in (stack, choice, torch.distributions.Categorical(torch.ones(3)), 3, "text"):
        with pytest.raises(UsageError) as raised:
            Composite(a=thing)
        assert raised.value.key == "a" and raised.value.found is thing
    assert Composite(a=theirs.NonTensor((2,), example_data="x"))["a"] == ours.NonTensor(
        (2,), example_data="x"
    )


def test_only_the_chosen_entries_are_checked() -> None:
    spec = Composite(action=Unbounded((1,)), action_value=Unbounded((3,)))
    wrong = spec.rand().set("action", torch.zeros(1, dtype=torch.int64))
    spec.type_check(wrong, "action_value")
    spec.type_check(wrong, ["action_value"])
    with pytest.raises(TypeError, match="action"):
        spec.type_check(wrong, "action")
