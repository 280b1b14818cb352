"""Specs of spaces that are described in JSON values, and of the rows of a dataset that has such.

gymnasium, whose spaces they are, need not be installed; Minari's ``metadata.json`` has them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from datasets_cli.errors import UsageError
from datasets_cli.schema.columns import Column, Key
from datasets_cli.schema.texts import TextColumn
from datasets_cli.specs.arguments import can_become, torch_dtype
from datasets_cli.specs.bounded import Bounded, Unbounded
from datasets_cli.specs.categorical import Binary, Categorical
from datasets_cli.specs.composite import Composite
from datasets_cli.specs.multi_categorical import MultiCategorical
from datasets_cli.specs.non_tensor import NonTensor, TextBox
from datasets_cli.specs.one_hot import MultiOneHot, OneHot
from datasets_cli.specs.spec import TensorSpec
from datasets_cli.store.manifest import Manifest

DescribedSpace = Mapping[str, Any]


def spec_of_space(space: DescribedSpace, *, one_hot: bool = False) -> TensorSpec:
    """Return the spec of a space."""
    # A `Box` without any finite bound is Unbounded; a `Tuple` is a Composite of "0", "1" and so on;
    # a `Discrete` that starts elsewhere than at 0 is Bounded, of whole numbers.
    kind = space.get("type")
    try:
        if kind in MADE:
            return MADE[kind](space, one_hot)
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"A space of the type {kind} lacks {error}: {space}") from error
    raise UsageError(
        f"There is no spec of a space of the type {kind}. There are those of Box, Discrete, "
        "MultiDiscrete, MultiBinary, Text, Dict and Tuple, whose values have one shape each."
    )


def _dict(space: DescribedSpace, one_hot: bool) -> TensorSpec:
    items = space["subspaces"].items()
    return Composite({name: spec_of_space(item, one_hot=one_hot) for name, item in items})


def _tuple(space: DescribedSpace, one_hot: bool) -> TensorSpec:
    items = {str(number): item for number, item in enumerate(space["subspaces"])}
    return _dict({"subspaces": items}, one_hot)


def _box(space: DescribedSpace, one_hot: bool) -> TensorSpec:
    shape, dtype = tuple(space["shape"]), torch_dtype(space["dtype"])
    low, high = (np.asarray(space[end], space["dtype"]) for end in ("low", "high"))
    if bool(np.isneginf(low).all() and np.isposinf(high).all()):
        return Unbounded(shape, dtype=dtype)
    return Bounded(torch.from_numpy(low), torch.from_numpy(high), shape, dtype=dtype)


def _text(space: DescribedSpace, one_hot: bool) -> TensorSpec:
    lengths = int(space["min_length"]), int(space["max_length"])
    return NonTensor((), space=TextBox(*lengths, frozenset(space["charset"])))


def _discrete(space: DescribedSpace, one_hot: bool) -> TensorSpec:
    n, start = int(space["n"]), int(space.get("start") or 0)
    if start == 0:
        return OneHot(n, dtype=torch.int64) if one_hot else Categorical(n)
    _refuse_start(start, one_hot)
    return Bounded(start, start + n - 1, (), dtype=torch.int64)


def _multi_discrete(space: DescribedSpace, one_hot: bool) -> TensorSpec:
    nvec, dtype = np.asarray(space["nvec"]), torch_dtype(space.get("dtype", "int64"))
    start = np.asarray(space.get("start") or np.zeros_like(nvec))
    if start.any():
        _refuse_start(start, one_hot)
        low, high = torch.from_numpy(start), torch.from_numpy(start + nvec - 1)
        return Bounded(low, high, dtype=dtype)
    return MultiOneHot(nvec, dtype=dtype) if one_hot else MultiCategorical(nvec, dtype=dtype)


def _refuse_start(start: Any, one_hot: bool) -> None:
    if one_hot:
        raise UsageError(
            f"Numbers that start at {start} are not those of one-hot vectors, which start at 0. "
            "Ask for numbers, one_hot=False."
        )


MADE: dict[str, Callable[[DescribedSpace, bool], TensorSpec]] = {
    "Dict": _dict,
    "Tuple": _tuple,
    "Box": _box,
    "Discrete": _discrete,
    "MultiDiscrete": _multi_discrete,
    "MultiBinary": lambda space, one_hot: Binary(shape=space["n"]),
    "Text": _text,
}
"""How the spec of a space of each type is made."""


FLAGS = ("done", "terminated", "truncated")


def dataset_specs(
    manifest: Manifest,
    columns: Sequence[Column] | None = None,
    texts: Sequence[TextColumn] = (),
) -> Composite:
    """Return what the entries of a row may be, as a Composite with the keys of batches."""
    # columns, texts: those that are read; by default all numbers, and no text.
    # Observations and actions have the spaces of the publisher, where its metadata have them and
    # they fit the column; flags are 0 or 1; everything else is Unbounded. Data that was derived by
    # a function has no spaces: the function may have changed the values.
    spaces = {} if manifest.parent is not None else published_spaces(manifest.metadata)
    specs = Composite()
    for column in manifest.columns if columns is None else columns:
        specs[column.key] = _spec(column, space_at(spaces, column.key))
    for each in texts:
        specs[each.key] = _text_spec(each.shape, space_at(spaces, each.key))
    return specs


def published_spaces(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spaces of observations and actions, None where the publisher says none."""
    return {name: _parsed(metadata.get(f"{name}_space")) for name in ("observation", "action")}


def _parsed(space: Any) -> Any:
    """Return a space as JSON values; Minari keeps them as a text of JSON."""
    try:
        return json.loads(space) if isinstance(space, str) else space
    except json.JSONDecodeError:
        return None


def space_at(spaces: Mapping[str, Any], key: Key) -> Any:
    """Return the space of a leaf, if there is one."""
    name, *below = key[1:] if key[0] == "next" else key
    space = spaces.get(name)
    for part in below:
        inner = space.get("subspaces") if isinstance(space, Mapping) else None
        if isinstance(inner, list):  # of a Tuple, whose members have their numbers as names
            inner = {str(number): item for number, item in enumerate(inner)}
        space = inner.get(part) if isinstance(inner, Mapping) else None
    return space if isinstance(space, Mapping) else None


def _spec(column: Column, space: Any) -> TensorSpec:
    dtype: torch.dtype = getattr(torch, column.dtype)
    if column.key[-1] in FLAGS and dtype == torch.bool:
        return Categorical(2, column.shape, dtype=dtype)
    return _fitting(space, column.shape, dtype) or Unbounded(column.shape, dtype=dtype)


def _fitting(space: Any, shape: tuple[int, ...], dtype: torch.dtype) -> TensorSpec | None:
    """Return the spec of a space where it is that of a column, else None."""
    try:
        spec = spec_of_space(space)
        # Whole numbers fit floating point columns, and not the other way round.
        is_kind = dtype.is_floating_point or not spec.dtype.is_floating_point
        is_fitting = is_kind and can_become(spec.shape, shape)
        return spec.to(dtype).reshape(shape) if is_fitting else None
    except (UsageError, AttributeError):  # no space, one without a spec, or no leaf
        return None


def _text_spec(shape: tuple[int, ...], space: Any) -> TensorSpec:
    try:
        spec = None if space is None else spec_of_space(space)
    except UsageError:
        spec = None
    known = spec.space if isinstance(spec, NonTensor) else None
    return NonTensor(shape, example_data="" if known is None else None, space=known)
