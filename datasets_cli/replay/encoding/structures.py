"""Rows that are tensors, or tensors in lists, tuples and dicts, as a TensorDict and a structure.

The TensorDict has the tensors under their numbers, ``"0"``, ``"1"``, in their order. The structure
is JSON:

    3                                 the tensor of that number
    {"list": [...]}, {"tuple": [...]} of structures
    {"dict": [[key, ...], ...]}       keys are texts or whole numbers
"""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import Rows
from datasets_cli.replay.encoding.json_files import MOST_DEPTH

# A level of rows is two of JSON.
_MOST_LEVELS = MOST_DEPTH // 4


def to_numbered(rows: Rows, ndim: int) -> tuple[TensorDict, Any]:
    """Return the tensors of rows under their numbers ``[*rows]``, and the structure they are in."""
    leaves: list[torch.Tensor] = []
    structure = _structure(rows, leaves, "rows", 0)
    sizes = {tuple(leaf.shape[:ndim]) for leaf in leaves}
    if len(sizes) != 1 or min(leaf.ndim for leaf in leaves) < ndim:
        raise UsageError(f"Expected tensors of the same number of rows; found the sizes {sizes}.")
    named = {str(number): leaf for number, leaf in enumerate(leaves)}
    return TensorDict(named, sizes.pop()), structure


def from_numbered(structure: Any, rows: TensorDictBase) -> Rows:
    """Return the rows that ``to_numbered`` took apart."""
    used: list[str] = []
    found = _rows(structure, rows, used)
    if sorted(used) != sorted(map(str, rows.keys())):
        raise ValueError(f"it has the tensors {', '.join(used)}")
    return found


def _structure(rows: Rows, leaves: list[torch.Tensor], name: str, level: int) -> Any:
    """Return the structure of rows, and append their tensors to ``leaves``."""
    kind = type(rows)
    if isinstance(rows, torch.Tensor):
        leaves.append(rows)
        return len(leaves) - 1
    if level < _MOST_LEVELS and kind in (list, tuple):
        parts = enumerate(rows)
        return {kind.__name__: [_structure(p, leaves, f"{name}[{n}]", level + 1) for n, p in parts]}
    if level < _MOST_LEVELS and kind is dict and all(type(key) in (str, int) for key in rows):
        pairs = rows.items()
        return {"dict": [[k, _structure(p, leaves, f"{name}[{k!r}]", level + 1)] for k, p in pairs]}
    raise UsageError(
        f"Only rows that are TensorDicts, or tensors in lists, tuples and dicts, can be dumped; "
        f"{name} is {kind.__module__}.{kind.__qualname__}. Write such rows, or keep the rows by "
        "other means."
    )


def _rows(structure: Any, leaves: TensorDictBase, used: list[str]) -> Rows:
    if type(structure) is int:
        used.append(str(structure))
        leaf = leaves.get(str(structure), None)
        if not isinstance(leaf, torch.Tensor):
            raise ValueError(f"there is no tensor {structure}")
        return leaf
    if not isinstance(structure, dict) or len(structure) != 1:
        raise ValueError(f"{structure!r} is no part of one")
    [(kind, parts)] = structure.items()
    if kind not in ("list", "tuple", "dict") or not isinstance(parts, list):
        raise ValueError(f"{kind!r} is no part of one")
    if kind != "dict":
        found = [_rows(part, leaves, used) for part in parts]
        return found if kind == "list" else tuple(found)
    if any(not isinstance(p, list) or len(p) != 2 or type(p[0]) not in (str, int) for p in parts):
        raise ValueError("a dict in it is not of pairs")
    return {key: _rows(part, leaves, used) for key, part in parts}
