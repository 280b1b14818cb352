"""Specs from gymnasium's spaces, and back. gymnasium is imported only when a space is made."""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from datasets_cli.errors import UsageError
from datasets_cli.specs.bounded import Bounded, Unbounded
from datasets_cli.specs.categorical import Binary, Categorical
from datasets_cli.specs.composite import Composite
from datasets_cli.specs.described_spaces import spec_of_space
from datasets_cli.specs.multi_categorical import MultiCategorical
from datasets_cli.specs.non_tensor import NonTensor
from datasets_cli.specs.one_hot import MultiOneHot, OneHot
from datasets_cli.specs.spec import TensorSpec

if TYPE_CHECKING:
    from gymnasium import Space

SpaceJson = dict[str, Any]


def spec_from_gymnasium(space: Space[Any], *, one_hot: bool = False) -> TensorSpec:
    """Return the spec of one of gymnasium's spaces.

    A ``Box`` without any finite bound is Unbounded; a ``Tuple`` is a Composite of "0", "1" and so
    on; a ``Discrete`` that starts elsewhere than at 0 is Bounded, of whole numbers.

    Args:
        space: a Box, Discrete, MultiDiscrete, MultiBinary, Text, or a Dict or Tuple of these.
        one_hot: make ``Discrete`` and ``MultiDiscrete`` vectors of int64, as TorchRL does.

    Raises:
        UsageError: values of the space do not have one shape and element type.
    """
    return spec_of_space(describe(space), one_hot=one_hot)


def spec_to_gymnasium(spec: TensorSpec) -> Space[Any]:
    """Return gymnasium's space of the values of a spec.

    Raises:
        UsageError: gymnasium has no such space, or is not installed.
    """
    space: Space[Any] = build(space_of_spec(spec))
    return space


def describe(space: Space[Any]) -> SpaceJson:
    """Return a space as JSON values, as Minari keeps it."""
    kinds = [kind.__name__ for kind in type(space).__mro__ if kind.__name__ in DESCRIBED]
    if not kinds:
        raise UsageError(
            f"There is no spec of {space}: there are those of Box, Discrete, MultiDiscrete, "
            "MultiBinary, Text, Dict and Tuple, whose values have one shape each."
        )
    return {"type": kinds[0], **DESCRIBED[kinds[0]](space)}


DESCRIBED: dict[str, Callable[[Any], SpaceJson]] = {
    "Dict": lambda space: {
        "subspaces": {_name(name): describe(item) for name, item in space.spaces.items()}
    },
    "Tuple": lambda space: {"subspaces": [describe(item) for item in space.spaces]},
    "Box": lambda space: {
        "dtype": str(space.dtype),
        "shape": [*space.shape],
        "low": space.low.tolist(),
        "high": space.high.tolist(),
    },
    "Discrete": lambda space: {"dtype": "int64", "start": int(space.start), "n": int(space.n)},
    "MultiDiscrete": lambda space: {
        "dtype": str(space.dtype),
        "nvec": space.nvec.tolist(),
        "start": space.start.tolist(),
    },
    "MultiBinary": lambda space: {"n": space.n if isinstance(space.n, int) else [*space.shape]},
    "Text": lambda space: {
        "max_length": space.max_length,
        "min_length": space.min_length,
        "charset": space.characters,
    },
}
"""What is kept of a space of each type; the names are gymnasium's."""


def build(space: SpaceJson) -> Any:
    """Return the space that JSON values describe, as Minari keeps them."""
    try:
        from gymnasium import spaces
    except ImportError as error:
        raise UsageError(
            "Spaces are gymnasium's, which is not installed. Run: pip install 'rlds-cli[collect]'"
        ) from error
    if space["type"] not in BUILT:
        raise UsageError(f"There is no space of the type {space['type']!r}.")
    return BUILT[space["type"]](spaces, space)


BUILT: dict[str, Callable[[Any, SpaceJson], Any]] = {
    "Dict": lambda spaces, space: spaces.Dict(
        {name: build(item) for name, item in space["subspaces"].items()}
    ),
    "Tuple": lambda spaces, space: spaces.Tuple([build(item) for item in space["subspaces"]]),
    "Box": lambda spaces, space: spaces.Box(
        *(np.array(space[end], space["dtype"]) for end in ("low", "high")),
        tuple(space["shape"]),
        np.dtype(space["dtype"]).type,
    ),
    "Discrete": lambda spaces, space: spaces.Discrete(space["n"], start=space["start"]),
    "MultiDiscrete": lambda spaces, space: spaces.MultiDiscrete(
        np.array(space["nvec"]), np.dtype(space["dtype"]).type, start=np.array(space["start"])
    ),
    "MultiBinary": lambda spaces, space: spaces.MultiBinary(space["n"]),
    "Text": lambda spaces, space: spaces.Text(
        space["max_length"], min_length=space["min_length"], charset=space["charset"]
    ),
}
"""How a space of each type is made."""


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise UsageError(f"Entries of a Composite have texts as names, not {name!r}.")
    return name


def space_of_spec(spec: TensorSpec) -> SpaceJson:
    """Return the description of the space of a spec."""
    # One-hot vectors have the space of their numbers. Element types of categories are gymnasium's:
    # int64, and int8 of Binary. A batch size is in each shape.
    if spec.mask is not None:
        raise UsageError(f"A space has no mask: gymnasium takes it when it draws. Found {spec}.")
    return _space(spec)


@singledispatch
def _space(spec: Any) -> SpaceJson:
    raise UsageError(f"gymnasium has no space of the values of {spec}.")


@_space.register
def _(spec: Composite) -> SpaceJson:
    items = {name: space_of_spec(item) for name, item in spec.items() if item is not None}
    if items and [*items] == [str(number) for number in range(len(items))]:
        return {"type": "Tuple", "subspaces": [*items.values()]}
    return {"type": "Dict", "subspaces": items}


@_space.register(OneHot)
@_space.register(MultiOneHot)
def _(spec: OneHot | MultiOneHot) -> SpaceJson:
    return _space(spec.to_categorical_spec())


@_space.register
def _(spec: Categorical) -> SpaceJson:
    if spec.ndim == 0:
        return {"type": "Discrete", "dtype": "int64", "start": 0, "n": spec.n}
    return _numbers(torch.full(spec.shape, spec.n))


@_space.register
def _(spec: MultiCategorical) -> SpaceJson:
    return _numbers(spec.nvec)


def _numbers(nvec: torch.Tensor) -> SpaceJson:
    start = torch.zeros_like(nvec).tolist()
    return {"type": "MultiDiscrete", "dtype": "int64", "nvec": nvec.tolist(), "start": start}


@_space.register
def _(spec: Binary) -> SpaceJson:
    if spec.ndim == 0:
        return {"type": "Discrete", "dtype": "int64", "start": 0, "n": 2}
    n = spec.shape[0] if spec.ndim == 1 else [*spec.shape]
    return {"type": "MultiBinary", "n": n}


@_space.register
def _(spec: NonTensor) -> SpaceJson:
    text = spec.space
    if text is None or spec.ndim > 0:
        raise UsageError(f"Text of one value, with its characters, has a space; not {spec}.")
    lengths = {"max_length": text.max_length, "min_length": text.min_length}
    return {"type": "Text", **lengths, "charset": "".join(sorted(text.characters))}


@_space.register
def _(spec: Bounded) -> SpaceJson:
    is_number = spec.dtype == torch.int64 and spec.ndim == 0
    if is_number and int(spec.low) != 0:
        n = int(spec.high) - int(spec.low) + 1
        return {"type": "Discrete", "dtype": "int64", "start": int(spec.low), "n": n}
    return _box(spec, spec.low, spec.high)


@_space.register
def _(spec: Unbounded) -> SpaceJson:
    if not spec.dtype.is_floating_point and not spec.dtype.is_complex:
        return _box(spec, spec.space.low, spec.space.high)
    limit = torch.full(spec.shape, torch.inf)
    return _box(spec, -limit, limit)


def _box(spec: TensorSpec, low: torch.Tensor, high: torch.Tensor) -> SpaceJson:
    dtype = str(spec.dtype).removeprefix("torch.")
    if dtype in ("bfloat16", "bool") or spec.dtype.is_complex:
        raise UsageError(f"A Box has no values of {spec.dtype}.")
    bounds = {"low": low.tolist(), "high": high.tolist()}
    return {"type": "Box", "dtype": dtype, "shape": [*spec.shape], **bounds}
