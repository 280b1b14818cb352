"""Spaces of specs, described in JSON values as Minari's ``metadata.json`` does."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import torch

from datasets_cli.errors import UsageError
from datasets_cli.specs.binary import Binary
from datasets_cli.specs.bounded import Bounded
from datasets_cli.specs.categorical import Categorical
from datasets_cli.specs.composite import Composite
from datasets_cli.specs.multi_categorical import MultiCategorical
from datasets_cli.specs.multi_one_hot import MultiOneHot
from datasets_cli.specs.non_tensor import NonTensor
from datasets_cli.specs.one_hot import OneHot
from datasets_cli.specs.spec import TensorSpec
from datasets_cli.specs.unbounded import Unbounded

Description = dict[str, Any]


def space_of_spec(spec: TensorSpec) -> Description:
    """Return the description of the space of a spec."""
    # One-hot vectors have the space of their numbers. Element types of categories are gymnasium's:
    # int64, and int8 of Binary. A batch size is in each shape.
    if spec.mask is not None:
        raise UsageError(f"A space has no mask: gymnasium takes it when it draws. Found {spec}.")
    return _space(spec)


@singledispatch
def _space(spec: Any) -> Description:
    raise UsageError(f"gymnasium has no space of the values of {spec}.")


@_space.register
def _(spec: Composite) -> Description:
    items = {name: space_of_spec(item) for name, item in spec.items()}
    if items and [*items] == [str(number) for number in range(len(items))]:
        return {"type": "Tuple", "subspaces": [*items.values()]}
    return {"type": "Dict", "subspaces": items}


@_space.register(OneHot)
@_space.register(MultiOneHot)
def _(spec: OneHot | MultiOneHot) -> Description:
    return _space(spec.to_categorical_spec())


@_space.register
def _(spec: Categorical) -> Description:
    if spec.ndim == 0:
        return {"type": "Discrete", "dtype": "int64", "start": 0, "n": spec.n}
    return _numbers(torch.full(spec.shape, spec.n))


@_space.register
def _(spec: MultiCategorical) -> Description:
    return _numbers(spec.nvec)


def _numbers(nvec: torch.Tensor) -> Description:
    start = torch.zeros_like(nvec).tolist()
    return {"type": "MultiDiscrete", "dtype": "int64", "nvec": nvec.tolist(), "start": start}


@_space.register
def _(spec: Binary) -> Description:
    if spec.ndim == 0:
        return {"type": "Discrete", "dtype": "int64", "start": 0, "n": 2}
    n = spec.shape[0] if spec.ndim == 1 else [*spec.shape]
    return {"type": "MultiBinary", "n": n}


@_space.register
def _(spec: NonTensor) -> Description:
    text = spec.space
    if text is None or spec.ndim > 0:
        raise UsageError(f"Text of one value, with its characters, has a space; not {spec}.")
    lengths = {"max_length": text.max_length, "min_length": text.min_length}
    return {"type": "Text", **lengths, "charset": "".join(sorted(text.characters))}


@_space.register
def _(spec: Bounded) -> Description:
    is_number = spec.dtype == torch.int64 and spec.ndim == 0
    if is_number and int(spec.low) != 0:
        n = int(spec.high) - int(spec.low) + 1
        return {"type": "Discrete", "dtype": "int64", "start": int(spec.low), "n": n}
    return _box(spec, spec.low, spec.high)


@_space.register
def _(spec: Unbounded) -> Description:
    if not spec.dtype.is_floating_point and not spec.dtype.is_complex:
        return _box(spec, spec.space.low, spec.space.high)
    limit = torch.full(spec.shape, torch.inf)
    return _box(spec, -limit, limit)


def _box(spec: TensorSpec, low: torch.Tensor, high: torch.Tensor) -> Description:
    dtype = str(spec.dtype).removeprefix("torch.")
    if dtype in ("bfloat16", "bool") or spec.dtype.is_complex:
        raise UsageError(f"A Box has no values of {spec.dtype}.")
    bounds = {"low": low.tolist(), "high": high.tolist()}
    return {"type": "Box", "dtype": dtype, "shape": [*spec.shape], **bounds}
