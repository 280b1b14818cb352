"""Specs of spaces that are described in JSON values, as Minari's ``metadata.json`` does.

gymnasium, whose spaces they are, need not be installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from datasets_cli.errors import UsageError
from datasets_cli.specs.binary import Binary
from datasets_cli.specs.bounded import Bounded
from datasets_cli.specs.categorical import Categorical
from datasets_cli.specs.composite import Composite
from datasets_cli.specs.multi_categorical import MultiCategorical
from datasets_cli.specs.non_tensor import NonTensor
from datasets_cli.specs.one_hot import MultiOneHot, OneHot
from datasets_cli.specs.spaces import TextBox
from datasets_cli.specs.spec import TensorSpec
from datasets_cli.specs.unbounded import Unbounded
from datasets_cli.specs.values import torch_dtype

Description = Mapping[str, Any]


def spec_of_space(space: Description, *, one_hot: bool = False) -> TensorSpec:
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


def _dict(space: Description, one_hot: bool) -> TensorSpec:
    items = space["subspaces"].items()
    return Composite({name: spec_of_space(item, one_hot=one_hot) for name, item in items})


def _tuple(space: Description, one_hot: bool) -> TensorSpec:
    items = {str(number): item for number, item in enumerate(space["subspaces"])}
    return _dict({"subspaces": items}, one_hot)


def _box(space: Description, one_hot: bool) -> TensorSpec:
    shape, dtype = tuple(space["shape"]), torch_dtype(space["dtype"])
    low, high = (np.asarray(space[end], space["dtype"]) for end in ("low", "high"))
    if bool(np.isneginf(low).all() and np.isposinf(high).all()):
        return Unbounded(shape, dtype=dtype)
    return Bounded(torch.from_numpy(low), torch.from_numpy(high), shape, dtype=dtype)


def _text(space: Description, one_hot: bool) -> TensorSpec:
    lengths = int(space["min_length"]), int(space["max_length"])
    return NonTensor((), space=TextBox(*lengths, frozenset(space["charset"])))


def _discrete(space: Description, one_hot: bool) -> TensorSpec:
    n, start = int(space["n"]), int(space.get("start") or 0)
    if start == 0:
        return OneHot(n, dtype=torch.int64) if one_hot else Categorical(n)
    _refuse_start(start, one_hot)
    return Bounded(start, start + n - 1, (), dtype=torch.int64)


def _multi_discrete(space: Description, one_hot: bool) -> TensorSpec:
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


MADE: dict[str, Callable[[Description, bool], TensorSpec]] = {
    "Dict": _dict,
    "Tuple": _tuple,
    "Box": _box,
    "Discrete": _discrete,
    "MultiDiscrete": _multi_discrete,
    "MultiBinary": lambda space, one_hot: Binary(shape=space["n"]),
    "Text": _text,
}
"""How the spec of a space of each type is made."""
