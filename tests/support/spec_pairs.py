"""The same spec by our class and by TorchRL's of that name; hypothesis draws the arguments."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from tensordict import TensorDict

import datasets_cli as ours

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchrl.data import tensor_specs as theirs

FLOATS = (torch.float32, torch.float64)
INTEGERS = (torch.int64, torch.int32, torch.uint8)


@dataclass(frozen=True)
class Made:
    """A class by name, and the arguments that make one of it."""

    kind: str
    arguments: dict[str, Any]

    @property
    def ours(self) -> Any:
        return getattr(ours.specs, self.kind)(**_parts(self.arguments, "ours"))

    @property
    def theirs(self) -> Any:
        return getattr(theirs, self.kind)(**_parts(self.arguments, "theirs"))


def _parts(arguments: dict[str, Any], whose: str) -> dict[str, Any]:
    return {
        name: getattr(value, whose) if isinstance(value, Made) else value
        for name, value in arguments.items()
    }


batches = st.lists(st.integers(1, 3), max_size=2).map(tuple)


@st.composite
def bounded(draw: Any, batch: tuple[int, ...]) -> Made:
    shape = (*batch, *draw(batches))
    dtype = draw(st.sampled_from(FLOATS + INTEGERS))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    low = torch.from_numpy(rng.integers(0 if dtype == torch.uint8 else -9, 9, shape)).to(dtype)
    high = low + torch.from_numpy(rng.integers(0, 9, shape)).to(dtype)
    return Made("Bounded", {"low": low, "high": high, "shape": shape, "dtype": dtype})


@st.composite
def unbounded(draw: Any, batch: tuple[int, ...]) -> Made:
    dtype = draw(st.sampled_from(FLOATS + INTEGERS))
    return Made("Unbounded", {"shape": (*batch, *draw(batches)), "dtype": dtype})


@st.composite
def categorical(draw: Any, batch: tuple[int, ...], masks: bool = False) -> Made:
    n, shape = draw(st.integers(1, 4)), (*batch, *draw(batches))
    mask = draw(allowed((n,))) if masks else None
    dtype = draw(st.sampled_from(INTEGERS))
    return Made("Categorical", {"n": n, "shape": shape, "dtype": dtype, "mask": mask})


@st.composite
def one_hot(draw: Any, batch: tuple[int, ...], masks: bool = False) -> Made:
    n = draw(st.integers(1, 4))
    shape = (*batch, *draw(batches), n)
    mask = draw(allowed((n,))) if masks else None
    dtype = torch.bool if masks else draw(st.sampled_from((torch.bool, torch.int64, *FLOATS)))
    return Made("OneHot", {"n": n, "shape": shape, "dtype": dtype, "mask": mask})


@st.composite
def multi(draw: Any, batch: tuple[int, ...]) -> Made:
    nvec = draw(st.lists(st.integers(1, 4), min_size=2, max_size=3))
    kind = draw(st.sampled_from(("MultiCategorical", "MultiOneHot")))
    size = len(nvec) if kind == "MultiCategorical" else sum(nvec)
    return Made(kind, {"nvec": nvec, "shape": (*batch, *draw(batches), size)})


@st.composite
def binary(draw: Any, batch: tuple[int, ...]) -> Made:
    n = draw(st.integers(1, 3))
    return Made("Binary", {"n": n, "shape": (*batch, n)})


@st.composite
def allowed(draw: Any, shape: tuple[int, ...]) -> torch.Tensor:
    flat = draw(st.lists(st.booleans(), min_size=shape[-1], max_size=shape[-1]).filter(any))
    return torch.tensor(flat)


def leaves(batch: tuple[int, ...] = ()) -> st.SearchStrategy[Made]:
    kinds = (bounded, unbounded, categorical, one_hot, multi, binary)
    return st.one_of(*(kind(batch) for kind in kinds))


@st.composite
def composites(draw: Any) -> Made:
    batch = draw(batches)
    inner = Made("Composite", {"c": draw(leaves(batch)), "shape": batch})
    specs = {"a": draw(leaves(batch)), "b": inner, "d": draw(leaves(batch))}
    return Made("Composite", {**specs, "shape": batch})


def specs() -> st.SearchStrategy[Made]:
    return st.one_of(leaves(), composites())


def without(kind: str) -> st.SearchStrategy[Made]:
    """Return specs of other classes, a composite of them among these."""
    return specs().filter(lambda made: kind not in [made.kind, *_kinds_inside(made)])


def _kinds_inside(made: Made) -> list[str]:
    inner = [value for value in made.arguments.values() if isinstance(value, Made)]
    return [kind for each in inner for kind in (each.kind, *_kinds_inside(each))]


def drawn(spec: Any, shape: tuple[int, ...] = ()) -> Any:
    torch.manual_seed(0)
    return spec.rand(torch.Size(shape))


def draw_alike(mine: Any, other: Any, shape: tuple[int, ...] = ()) -> bool:
    """Return whether two specs draw the same, and each has what the other one draws.

    TorchRL draws the numbers of a MultiCategorical of several rows one by one, and ours column by
    column: there the values are of another order.
    """
    first, second = drawn(mine, shape), drawn(other, shape)
    are_in = mine.is_in(second) and bool(other.is_in(first))
    if hasattr(mine, "keys"):
        keys = [key for key, spec in mine.items(True, True) if spec is not None]
        is_same = all(_in_rows(mine[key]) or same(first[key], second[key]) for key in keys)
        return are_in and is_same and first.batch_size == second.batch_size
    return are_in and (_in_rows(mine) or same(first, second))


def _in_rows(spec: Any) -> bool:
    return isinstance(spec, ours.MultiCategorical) and spec.ndim > 1


def same(mine: Any, other: Any) -> bool:
    if isinstance(mine, TensorDict):
        keys = set(mine.keys(True, True))
        is_same = keys == set(other.keys(True, True)) and mine.batch_size == other.batch_size
        return is_same and all(same(mine[key], other[key]) for key in keys)
    return mine.dtype == other.dtype and torch.equal(mine, other)


def alike(mine: Any, other: Any) -> bool:
    """Return whether our spec says what theirs does, and draws the same."""
    attributes = ("shape", "dtype", "domain", "ndim")
    names = () if hasattr(mine, "keys") else attributes
    equal = all(getattr(mine, name) == getattr(other, name) for name in names)
    return equal and mine.shape == other.shape and draw_alike(mine, other)


def printed(spec: Any) -> str:
    return re.sub("contiguous=(True|False)|,\\s*data_cls=None", "", repr(spec))
