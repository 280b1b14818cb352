"""Conversion of gymnasium spaces to specs; gymnasium is imported when it is needed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from datasets_cli.errors import Unsupported, UsageError, install_extra
from datasets_cli.schema.columns import Column, Key
from datasets_cli.schema.texts import TextColumn
from datasets_cli.specs.bounded import Bounded, Unbounded
from datasets_cli.specs.categorical import Binary, Categorical, MultiCategorical
from datasets_cli.specs.composite import Composite
from datasets_cli.specs.leaf import NonTensor, TextBox
from datasets_cli.specs.one_hot import MultiOneHot, OneHot
from datasets_cli.specs.spec import TensorSpec, can_become, torch_dtype
from datasets_cli.store.manifest import Manifest

if TYPE_CHECKING:
    from gymnasium import Space


DescribedSpace = Mapping[str, Any]


def spec_of_space(space: DescribedSpace, *, one_hot: bool = False) -> TensorSpec:
    """Return the spec of a space that is described as JSON values."""
    kind = space.get("type")
    try:
        if kind in MADE:
            return MADE[kind](space, one_hot)
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"A space of the type {kind} lacks {error}: {space}", argument="space", found=space
        ) from error
    raise _no_spec(kind)


def _no_spec(kind: object) -> Unsupported:
    return Unsupported(
        f"A space {kind} cannot be converted to a spec. Supported are {', '.join(MADE)}.",
        argument="space",
        expected=[*MADE],
        found=kind,
    )


def _dict(space: DescribedSpace, one_hot: bool) -> TensorSpec:
    items = space["subspaces"].items()
    return Composite({name: spec_of_space(item, one_hot=one_hot) for name, item in items})


def _tuple(space: DescribedSpace, one_hot: bool) -> TensorSpec:
    items = {str(number): item for number, item in enumerate(space["subspaces"])}
    return _dict({"subspaces": items}, one_hot)


def _described_box(space: DescribedSpace, one_hot: bool) -> TensorSpec:
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
        raise Unsupported(
            f"One-hot vectors encode numbers from 0; the space starts at {start}.",
            argument="one_hot",
            found=start,
            advice="Pass one_hot=False.",
        )


MADE: dict[str, Callable[[DescribedSpace, bool], TensorSpec]] = {
    "Dict": _dict,
    "Tuple": _tuple,
    "Box": _described_box,
    "Discrete": _discrete,
    "MultiDiscrete": _multi_discrete,
    "MultiBinary": lambda space, one_hot: Binary(shape=space["n"]),
    "Text": _text,
}
"""The constructor of the spec for each type of space."""


FLAGS = ("done", "terminated", "truncated")


def dataset_specs(
    manifest: Manifest,
    columns: Sequence[Column] | None = None,
    texts: Sequence[TextColumn] = (),
) -> Composite:
    """Return the spec of the columns and texts that are read; by default all columns, no texts."""
    # Observations and actions have the publisher's spaces if they fit the column; flags are 0 or 1;
    # all else is Unbounded. A derived dataset's function may have changed the values, so the
    # publisher's spaces do not apply to it.
    spaces = {} if manifest.parent is not None else published_spaces(manifest.metadata)
    specs = Composite()
    for column in manifest.columns if columns is None else columns:
        specs[column.key] = _spec(column, space_at(spaces, column.key))
    for each in texts:
        specs[each.key] = _text_spec(each.shape, space_at(spaces, each.key))
    return specs


def published_spaces(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spaces of observations and actions; None for a space that is not published."""
    return {name: _parsed(metadata.get(f"{name}_space")) for name in ("observation", "action")}


def _parsed(space: Any) -> Any:
    """Return a space as JSON values; Minari stores them as JSON text."""
    try:
        return json.loads(space) if isinstance(space, str) else space
    except json.JSONDecodeError:
        return None


def space_at(spaces: Mapping[str, Any], key: Key) -> Any:
    """Return the space of a column, or None."""
    name, *below = key[1:] if key[0] == "next" else key
    space = spaces.get(name)
    for part in below:
        inner = space.get("subspaces") if isinstance(space, Mapping) else None
        if isinstance(inner, list):  # a Tuple: its members are named by their numbers
            inner = {str(number): item for number, item in enumerate(inner)}
        space = inner.get(part) if isinstance(inner, Mapping) else None
    return space if isinstance(space, Mapping) else None


def _spec(column: Column, space: Any) -> TensorSpec:
    dtype: torch.dtype = getattr(torch, column.dtype)
    if column.key[-1] in FLAGS and dtype == torch.bool:
        return Categorical(2, column.shape, dtype=dtype)
    return _fitting(space, column.shape, dtype) or Unbounded(column.shape, dtype=dtype)


def _fitting(space: Any, shape: tuple[int, ...], dtype: torch.dtype) -> TensorSpec | None:
    """Return the spec of a space if it fits a column, else None."""
    try:
        spec = spec_of_space(space)
        # An integer space fits a floating point column, but not the reverse.
        is_kind = dtype.is_floating_point or not spec.dtype.is_floating_point
        is_fitting = is_kind and can_become(spec.shape, shape)
        return spec.to(dtype).reshape(shape) if is_fitting else None
    except (UsageError, AttributeError):  # the space is missing, cannot be converted, or is nested
        return None


def _text_spec(shape: tuple[int, ...], space: Any) -> TensorSpec:
    try:
        spec = None if space is None else spec_of_space(space)
    except UsageError:
        spec = None
    known = spec.space if isinstance(spec, NonTensor) else None
    return NonTensor(shape, example_data="" if known is None else None, space=known)


SpaceJson = dict[str, Any]


def spec_from_gymnasium(space: Space[Any], *, one_hot: bool = False) -> TensorSpec:
    """Return the spec of a gymnasium space.

    A ``Box`` without finite bounds becomes Unbounded. A ``Tuple`` becomes a Composite of "0", "1"
    and so on. A ``Discrete`` with a start other than 0 becomes a Bounded of integers.

    Args:
        space: a Box, Discrete, MultiDiscrete, MultiBinary, Text, or a Dict or Tuple of these.
        one_hot: convert ``Discrete`` and ``MultiDiscrete`` to one-hot vectors of int64, as TorchRL
            does.

    Raises:
        Unsupported: the values of the space differ in shape or dtype.
    """
    return spec_of_space(describe(space), one_hot=one_hot)


def describe(space: Space[Any]) -> SpaceJson:
    """Return a space as JSON values, in Minari's form."""
    kinds = [kind.__name__ for kind in type(space).__mro__ if kind.__name__ in DESCRIBED]
    if not kinds:
        raise _no_spec(space)
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
"""The attributes of each type of space, by gymnasium's names."""


def build(space: SpaceJson) -> Any:
    """Return the space of JSON values in Minari's form."""
    try:
        from gymnasium import spaces
    except ImportError as error:
        raise UsageError("gymnasium is not installed.", advice=install_extra("collect")) from error
    if space["type"] not in BUILT:
        raise UsageError(
            f"Unknown type of space {space['type']!r}.", expected=[*BUILT], found=space["type"]
        )
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
"""The constructor of each type of space."""


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise Unsupported(
            f"The keys of a Dict space must be text, not {name!r}.", argument="space", found=name
        )
    return name
