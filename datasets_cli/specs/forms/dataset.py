"""The specs of a dataset's rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch

from datasets_cli.errors import UsageError
from datasets_cli.schema.columns import Column, Key
from datasets_cli.specs.categorical import Categorical
from datasets_cli.specs.composite import Composite
from datasets_cli.specs.forms.from_space import spec_of_space
from datasets_cli.specs.non_tensor import NonTensor
from datasets_cli.specs.shapes import same_but_ones
from datasets_cli.specs.spec import TensorSpec
from datasets_cli.specs.unbounded import Unbounded
from datasets_cli.store.manifest import Manifest

FLAGS = ("done", "terminated", "truncated")


def dataset_specs(manifest: Manifest, *, text: bool = False) -> Composite:
    """Return what the entries of a row may be, as a Composite with the keys of batches."""
    # Observations and actions have the spaces of the publisher, where its metadata have them and
    # they fit the column; flags are 0 or 1; everything else is Unbounded. Data that was derived by
    # a function has no spaces: the function may have changed the values.
    spaces = {} if manifest.parent is not None else _spaces(manifest.metadata)
    specs = Composite()
    for column in manifest.columns:
        specs[column.key] = _spec(column, _space_at(spaces, column.key))
    for each in manifest.texts if text else ():
        specs[each.key] = _text_spec(each.shape, _space_at(spaces, each.key))
    return specs


def _spaces(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _parsed(metadata.get(f"{name}_space")) for name in ("observation", "action")}


def _parsed(space: Any) -> Any:
    """Return a space as JSON values; Minari keeps them as a text of JSON."""
    try:
        return json.loads(space) if isinstance(space, str) else space
    except json.JSONDecodeError:
        return None


def _space_at(spaces: Mapping[str, Any], key: Key) -> Any:
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
        is_fitting = is_kind and same_but_ones(spec.shape, shape)
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
