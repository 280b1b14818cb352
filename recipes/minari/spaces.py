"""The spaces of a Minari dataset: JSON texts in ``metadata.json``, with gymnasium's names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from datasets_cli.formats.limits import read_json
from datasets_cli.recipe import SourceError

Space = dict[str, Any]

TUPLE_ITEM = re.compile(r"_index_(\d+)")
"""The name of a Tuple's item in an HDF5 file."""


def parse_space(text: Any, name: str) -> Space | None:
    """Return a space as JSON values; None if the publisher does not state it."""
    if text is None:
        return None
    space = read_json(text, f"metadata.json: {name}") if isinstance(text, str) else text
    _check(space, name)
    assert isinstance(space, dict)
    return space


def find_space(spaces: Mapping[str, Space | None], path: str) -> Space | None:
    """Return the space of an array in the file; None if it is unknown."""
    root, *below = path.split("/")
    space = spaces.get(root)
    for part in below:
        inner = (space or {}).get("subspaces", {})
        if isinstance(inner, list):
            # An item is _index_0 in HDF5 and 0 in Arrow.
            items = enumerate(inner)
            inner = {name: item for n, item in items for name in (f"_index_{n}", str(n))}
        space = inner.get(part)
    return space


def space_shape(space: Space) -> tuple[int, ...] | None:
    """Return the shape of a value of a space; None if it is not an array, or not stated."""
    kind = space["type"]
    if kind == "MultiBinary":
        size = space.get("n")
        return tuple(size) if isinstance(size, list) else (size,) if size is not None else None
    if kind == "MultiDiscrete":
        return tuple(_shape(space.get("nvec")))
    if kind == "Discrete":
        return ()
    return tuple(space["shape"]) if "shape" in space else None


def torchrl_form(space: Space | None) -> Space | None:
    """Return a space in the form of TorchRL's ``env_metadata.json``; None for text."""
    # TorchRL's form lacks MultiDiscrete, MultiBinary and Tuple: they have gymnasium's names.
    kind = None if space is None else space["type"]
    if space is None or kind == "Text":
        return None
    if kind == "Dict":
        inner = {key: torchrl_form(item) for key, item in space["subspaces"].items()}
        return {**space, "subspaces": inner}
    if kind == "Tuple":
        return {**space, "subspaces": [torchrl_form(item) for item in space["subspaces"]]}
    if kind == "MultiBinary":
        return {"dtype": "int8", "shape": list(space_shape(space) or ()), **space}
    if kind == "MultiDiscrete":
        return {"shape": list(space_shape(space) or ()), **space}
    return {"shape": [], **space}


def _shape(values: Any) -> list[int]:
    return [len(values), *_shape(values[0])] if isinstance(values, list) and values else []


def _check(space: Any, name: str) -> None:
    """Reject JSON values that are not a space."""
    inner: Any = space.get("subspaces", []) if isinstance(space, dict) else None
    kind = space.get("type") if isinstance(space, dict) else None
    fits = isinstance(inner, dict if kind == "Dict" else list)
    if not (isinstance(kind, str) and fits and isinstance(space.get("shape", []), list)):
        raise SourceError(
            f"metadata.json: {name} is not a space: expected an object with a type, and subspaces "
            f"in a Dict or a Tuple; found {str(space)[:80]}.",
            path="metadata.json",
            key=name,
            found=str(space)[:80],
        )
    for item in inner.values() if kind == "Dict" else inner:
        _check(item, f"{name}.subspaces")
