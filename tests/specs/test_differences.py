"""Differences of specs: as values, as checks of an environment."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

import datasets_cli as ours
from datasets_cli import (
    Bounded,
    Categorical,
    Composite,
    OneHot,
    Unbounded,
    UsageError,
    check_env_specs,
)
from datasets_cli.errors import NotWritable, Unsupported, WrongRows, WrongSize
from tests.support.refusals import refused
from tests.support.spec_pairs import Made

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchrl.data import tensor_specs as theirs


def test_a_value_of_the_shape_before_broadcasting_is_not_in_it() -> None:
    rewards = torch.zeros(200)
    assert theirs.Unbounded((1,)).is_in(rewards)
    assert not ours.Unbounded((1,)).is_in(rewards)


def test_a_value_of_another_shape_or_none_is_not_in_it() -> None:
    with pytest.raises(RuntimeError):
        theirs.Unbounded((3,)).is_in(torch.zeros(2))
    with pytest.raises(AttributeError):
        theirs.Unbounded((3,)).is_in([0.0, 0.0, 0.0])
    assert not ours.Unbounded((3,)).is_in(torch.zeros(2))
    assert not ours.Unbounded((3,)).is_in([0.0, 0.0, 0.0])


def test_a_missing_entry_is_not_in_a_composite() -> None:
    made = Made("Composite", {"a": Made("Categorical", {"n": 2})})
    with pytest.raises(AttributeError):
        made.theirs.is_in({})
    assert not made.ours.is_in({})


def test_values_of_infinite_bounds_are_finite() -> None:
    bounds = (torch.tensor([-math.inf, -1.0, -3e38]), torch.tensor([math.inf, math.inf, 3e38]))
    assert not theirs.Bounded(*bounds).rand((99,)).isfinite().all()
    spec = ours.Bounded(*bounds)
    values = spec.rand((999,))
    assert values.isfinite().all()
    assert spec.is_in(values)
    assert values[:, 1].min() < -0.9
    assert values[:, 0].mean().abs() < 0.2


def test_whole_numbers_of_a_vector_are_projected_to_the_largest() -> None:
    value = torch.tensor([1.0, 3.0, 2.0])
    assert len({str(theirs.OneHot(3).project(value)) for _ in range(99)}) > 1  # by chance
    assert ours.OneHot(3).project(value).tolist() == [False, True, False]
    assert ours.MultiOneHot([2, 3]).project(torch.zeros(5)).tolist() == [1, 0, 1, 0, 0]


def test_a_masked_category_is_projected_to_the_nearest() -> None:
    mask = torch.tensor([True, False, False, True])
    assert ours.Categorical(4, mask=mask).project(torch.tensor(2)) == 3
    assert ours.OneHot(4, mask=mask).project(torch.tensor([1.0, 9, 9, 2])).tolist() == [0, 0, 0, 1]


def test_projecting_leaves_the_value_as_it_is_and_gives_the_element_type() -> None:
    value = torch.tensor([5, -1])
    theirs.Categorical(3, (2,)).project(value)
    assert value.tolist() == [2, 0]
    value = torch.tensor([5.0, -1.0])
    projected = ours.Categorical(3, (2,)).project(value)
    assert value.tolist() == [5, -1]
    assert projected.dtype == torch.int64
    assert theirs.Categorical(3, (2,)).project(value).dtype == torch.float32


def test_projecting_a_tensordict_leaves_it_as_it_is() -> None:
    value = TensorDict({"a": torch.tensor(5), "other": torch.tensor(1)}, batch_size=())
    projected = ours.Composite(a=ours.Categorical(3)).project(value)
    assert (value["a"], projected["a"], projected["other"]) == (5, 2, 1)
    theirs.Composite(a=theirs.Categorical(3)).project(value)
    assert value["a"] == 2


@pytest.mark.parametrize("value", [3, -1, 1.5])
def test_a_number_outside_the_categories_is_not_encoded(value: float) -> None:
    assert theirs.Categorical(3).encode(value).dtype == torch.int64
    for spec in (ours.Categorical(3), ours.OneHot(3), ours.specs.Binary(1)):
        with refused(UsageError, found=value):
            spec.encode(value)


def test_encoded_values_are_copies_of_the_shape() -> None:
    array = np.zeros((2, 3), np.float32)
    spec = Made("Unbounded", {"shape": (2, 3)})
    mine, other = spec.ours.encode(array), spec.theirs.encode(array)
    array += 1
    assert (mine.sum(), other.sum()) == (0, 6)
    assert spec.theirs.encode(array.T).shape == (2, 3)  # rows and columns in another order
    with refused(WrongRows, expected=(2, 3), found=(3, 2)):
        spec.ours.encode(array.T)


@pytest.mark.parametrize("value", [300, -1, 2.5])
def test_values_that_the_dtype_cannot_represent_are_not_encoded(value: float) -> None:
    frames = Made("Bounded", {"low": 0, "high": 255, "shape": (1,), "dtype": torch.uint8})
    assert frames.theirs.encode(np.array([value])).item() != value
    with refused(UsageError, expected=torch.uint8, found=[value]):
        frames.ours.encode([value])


def test_values_beyond_the_dtype_are_projected_to_its_bounds() -> None:
    value = torch.tensor([300.0, -math.inf, 1e30])
    assert ours.Unbounded((3,), dtype=torch.uint8).project(value).tolist() == [255, 0, 255]
    assert theirs.Unbounded((3,), dtype=torch.uint8).project(value).tolist() != [255, 0, 255]
    assert ours.Unbounded((3,), dtype=torch.int64).project(value)[2] == 2**63 - 1


def test_nan_is_not_projected_to_a_category() -> None:
    value = torch.tensor([math.nan])
    assert theirs.Categorical(3, (1,)).project(value).isnan()
    for spec in (ours.Categorical(3, (1,)), ours.OneHot(1), ours.specs.Binary(1)):
        with pytest.raises(UsageError) as raised:
            spec.project(value)
        assert raised.value.found is value
    assert ours.Bounded(-1, 1, (1,)).project(value).isnan()


def test_one_item_of_several_keeps_its_dimension() -> None:
    assert ours.MultiCategorical([3]).rand().shape == (1,)
    assert theirs.MultiCategorical([3]).rand().shape == ()


def test_an_indexed_multi_categorical_is_a_scalar() -> None:
    assert ours.MultiCategorical([2, 3])[1].shape == ()
    assert theirs.MultiCategorical([2, 3])[1].shape == (1,)


def test_all_combinations_of_zeros_and_ones_are_listed() -> None:
    assert ours.specs.Binary(2).enumerate().tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert theirs.Binary(2).enumerate().tolist() == [[0, 0], [1, 1]]
    assert ours.specs.Binary(3).cardinality() == 8


def test_specs_of_other_classes_are_not_equal() -> None:
    assert theirs.Binary(2) == theirs.Categorical(2, (2,), dtype=torch.int8)
    assert ours.specs.Binary(2) != ours.Categorical(2, (2,), dtype=torch.int8)
    info = torch.iinfo(torch.uint8)
    assert theirs.Unbounded((2,), dtype=torch.uint8) == theirs.Bounded(
        info.min, info.max, (2,), dtype=torch.uint8
    )
    assert ours.Unbounded((2,), dtype=torch.uint8) != ours.Bounded(
        info.min, info.max, (2,), dtype=torch.uint8
    )
    with pytest.raises(AttributeError):
        assert theirs.Binary(1, (1,)) != theirs.MultiCategorical([1, 1])
    assert ours.specs.Binary(1, (1,)) != ours.MultiCategorical([1, 1])


def test_stacking_specs_that_differ_is_refused() -> None:
    assert type(torch.stack([theirs.OneHot(2), theirs.OneHot(3)])).__name__ == "Stacked"
    with refused(UsageError, expected=ours.OneHot(2), found=ours.OneHot(3)):
        torch.stack([ours.OneHot(2), ours.OneHot(3)])


def test_ones_of_a_composite_are_of_its_element_types() -> None:
    made = Made("Composite", {"a": Made("OneHot", {"n": 2})})
    assert made.ours.one()["a"].dtype == torch.bool
    assert made.theirs.one()["a"].dtype == torch.int64


def test_numbers_keep_their_places_when_they_are_reshaped() -> None:
    made = Made("MultiCategorical", {"nvec": [[2, 3], [4, 5]]})
    assert made.ours.unsqueeze(1).squeeze(1) == made.ours
    assert made.ours.reshape(4).nvec.tolist() == [2, 3, 4, 5]
    with pytest.raises(ValueError):
        made.theirs.reshape(4)


def test_vectors_are_of_the_shape_of_their_spec() -> None:
    made = Made("OneHot", {"n": 3, "shape": (2, 1, 3)})
    assert made.theirs.encode(np.array([1, 2])).shape == (2, 3)
    assert made.ours.encode(np.array([1, 2])).shape == (2, 1, 3)


def test_a_mask_applies_to_vectors_and_enumerate() -> None:
    mask = torch.tensor([True, False, True])
    made = Made("Categorical", {"n": 3, "mask": mask})
    assert made.theirs.to_one_hot_spec().mask is None
    vectors = made.ours.to_one_hot_spec()
    assert vectors.enumerate(use_mask=True).int().tolist() == [[1, 0, 0], [0, 0, 1]]
    with pytest.raises(NotImplementedError):
        theirs.OneHot(3, mask=mask).enumerate(use_mask=True)


FREE = Made("Composite", {"a": Made("Unbounded", {"shape": (1, 2)}), "b": None, "shape": (1,)})


@pytest.mark.parametrize("change", ["squeeze", "unbind", "enumerate", "reshape"])
def test_a_place_stays_free(change: str) -> None:
    made = FREE if change != "enumerate" else Made("Composite", {"b": None})
    arguments = (1, 1) if change == "reshape" else ()
    with pytest.raises((AttributeError, NotImplementedError)):
        getattr(made.theirs, change)(*arguments)
    changed = getattr(made.ours, change)(*arguments)
    assert len(changed) == 1 or changed.keys() == ["a", "b"]


def test_a_nested_entry_is_checked_and_taken_out() -> None:
    made = Made("Composite", {"b": Made("Composite", {"c": Made("Categorical", {"n": 2})})})
    value = TensorDict({"b": {"c": torch.tensor(0.5)}})
    made.theirs.type_check(value)
    with pytest.raises(TypeError, match=r"\('b', 'c'\)"):
        made.ours.type_check(value)
    with pytest.raises(KeyError):
        made.theirs.pop("b")
    assert made.ours.pop("b").keys() == ["c"]


def test_entries_of_a_locked_composite_cannot_be_deleted() -> None:
    made = Made("Composite", {"a": Made("Composite", {"b": None})})
    mine, other = made.ours.lock_(), made.theirs.lock_()
    del other["a", "b"]
    for change in (lambda: mine.pop("a"), lambda: mine.__delitem__(("a", "b"))):
        with pytest.raises(NotWritable):
            change()
    with pytest.raises(RuntimeError):
        other["a"].unlock_()
    assert not mine["a"].unlock_().is_locked and mine.is_locked


def test_names_are_as_many_as_dimensions() -> None:
    made = Made("Composite", {"shape": (2,), "names": ["time"]})
    with pytest.raises(ValueError):
        made.theirs.rand((3,))
    assert made.ours.rand((3,)).names == [None, "time"]
    made = Made("Composite", {"shape": (2,), "names": ["time", "env"]})
    assert len(made.theirs.names) == 2
    with pytest.raises(WrongSize) as raised:
        _ = made.ours
    error = raised.value
    assert (error.argument, error.expected, error.found) == ("names", 1, 2)


def test_names_and_indices_that_only_torchrl_refuses() -> None:
    for name in ("shape", "device", "dtype", "space"):
        with pytest.raises(AttributeError):
            theirs.Composite()[name] = None
        assert name in ours.Composite({name: None})
    places = torch.tensor([0])
    with pytest.raises(ValueError):
        torch.index_select(theirs.Binary(3), 0, places)
    assert torch.index_select(ours.specs.Binary(3), 0, places) == ours.specs.Binary(1)  # type: ignore[call-overload]
    assert (theirs.Composite().cardinality(), ours.Composite().cardinality()) == (0, 1)


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("Categorical", {"n": 0}),
    ("Categorical", {"n": 300, "dtype": torch.uint8}),
    ("Categorical", {"n": 3, "mask": torch.zeros(3, dtype=torch.bool)}),
    ("OneHot", {"n": 3, "use_register": True}),
    ("Bounded", {"low": 1.0, "high": -1.0, "shape": (2,)}),
    ("Bounded", {"low": math.nan, "high": 1.0, "shape": (2,)}),
    ("UnboundedDiscrete", {"shape": (2,), "dtype": torch.float32}),
    ("MultiCategorical", {"nvec": [2, 0]}),
    ("Bounded", {"low": 0, "high": 1.5, "shape": (2,), "dtype": torch.int64}),
]


def test_specs_that_only_torchrl_accepts_are_refused() -> None:
    for kind, arguments in REFUSED:
        made = Made(kind, arguments)
        assert made.theirs is not None
        with pytest.raises(UsageError):
            _ = made.ours


# check_env_specs on an environment of two steps, each entry of which may be wrong.


FLAG = Categorical(2, (1,), dtype=torch.bool)


class Environment:
    """Gives what its specs draw, but for the entries that are replaced."""

    def __init__(self, replaced: dict[Any, Any] | None = None, batch: tuple[int, ...] = ()) -> None:
        self.replaced = replaced or {}
        self.batch = torch.Size(batch)
        observation = Composite({"position": Bounded(-1, 1, (2,)), "arm": {"angle": Unbounded()}})
        flags = Composite(done=FLAG, terminated=FLAG, truncated=FLAG)
        self.observation_spec = observation.expand(self.batch)
        self.done_spec = flags.expand(self.batch)
        self.action_spec = OneHot(3).expand((*self.batch, 3))
        self.reward_spec = Unbounded((*self.batch, 1))
        self.seed: int | None = None

    def set_seed(self, seed: int) -> None:
        self.seed = seed

    def rollout(self, max_steps: int) -> TensorDict:
        steps = torch.stack([self.step() for _ in range(max_steps)], len(self.batch))
        for key, value in self.replaced.items():
            steps[key] = value
        return steps

    def step(self) -> TensorDict:
        after = self.observation_spec.rand().update(self.done_spec.rand())
        before = self.observation_spec.rand().update(self.done_spec.rand())
        after["reward"] = self.reward_spec.rand()
        return before.update({"action": self.action_spec.rand(), "next": after})


@pytest.mark.parametrize("batch", [(), (4,)])
def test_an_environment_that_keeps_to_its_specs_passes(batch: tuple[int, ...]) -> None:
    environment = Environment(batch=batch)
    check_env_specs(environment, seed=3)
    assert environment.seed == 3


@pytest.mark.parametrize(
    ("key", "value", "step", "expected"),
    [
        (("next", "reward"), torch.zeros(3), 0, (1,)),
        (("arm", "angle"), torch.zeros(3, 1).double(), 0, torch.float32),
        (("position",), torch.tensor([[0, 0], [0, 9.0], [0, 0]]), 1, Bounded(-1, 1, (2,))),
        (("action",), torch.zeros(3, 3, dtype=torch.bool), 0, OneHot(3)),
    ],
)
def test_an_entry_that_does_not_is_named(
    key: tuple[str, ...], value: torch.Tensor, step: int, expected: object
) -> None:
    with pytest.raises(WrongRows) as raised:
        check_env_specs(Environment({key: value}))
    error = raised.value
    assert (error.key, error.row, error.expected) == (key, step, expected)
    assert str(error).startswith(f"{'.'.join(key)} of step {step} ")


def test_an_entry_without_a_spec_is_named() -> None:
    with pytest.raises(WrongRows) as raised:
        check_env_specs(Environment({"extra": torch.zeros(3)}))
    assert raised.value.key == ("extra",) and raised.value.row is None


def test_a_missing_entry_is_named() -> None:
    environment = Environment()
    environment.observation_spec["velocity"] = Unbounded()
    environment.step = Environment().step  # type: ignore[method-assign]
    with refused(WrongRows, key=("next", "velocity")):
        check_env_specs(environment)


def test_another_dtype_passes_without_check_dtype() -> None:
    environment = Environment({("arm", "angle"): torch.zeros(3, 1).double()})
    check_env_specs(environment, check_dtype=False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("return_contiguous", False),
        ("tensordict", TensorDict({})),
        ("break_when_any_done", False),
    ],
)
def test_steps_that_are_not_stacked_are_refused(name: str, value: Any) -> None:
    with refused(Unsupported, argument=name, found=value):
        check_env_specs(Environment(), **{name: value})


def test_a_value_that_is_not_an_environment_is_refused() -> None:
    with refused(UsageError, argument="env", found=OneHot(2)):
        check_env_specs(OneHot(2))


def test_an_environment_of_torchrl_passes() -> None:
    from torchrl.envs import GymEnv

    check_env_specs(GymEnv("CartPole-v1"), seed=0)
