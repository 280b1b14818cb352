"""Values that are no tensors, as JSON: what JSON cannot say by itself is tagged.

text, 64-bit integers, finite numbers, bool, None, lists, dicts     as they are
bytes                 {"__rlds__": ["bytes", "aGk="]}               base64
NaN and infinities    {"__rlds__": ["float", "nan"]}
larger integers       {"__rlds__": ["int", "0x1..."]}
tuples                {"__rlds__": ["tuple", [...]]}
other dicts           {"__rlds__": ["dict", [[key, value], ...]]}   keys that are no text
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from datasets_cli.errors import UsageError
from datasets_cli.replay.encoding.json_files import MOST_DEPTH

TAG = "__rlds__"
SCALARS = (str, bytes, int, float, bool, type(None))
ALLOWED = "str, bytes, int, float, bool, None, and lists, tuples and dicts of these"

# What a value may add to the depth of its file: a tag doubles each level.
_VALUE_DEPTH = MOST_DEPTH // 4


def to_json(value: Any, name: str, depth: int = 0) -> Any:
    """Return a value as JSON."""
    value = plain_scalar(value)
    kind = type(value)
    if value is None or kind in (str, bool):
        return value
    if kind is int:
        return value if -(2**63) <= value < 2**63 else _tagged("int", hex(value))
    if kind is float:
        return value if math.isfinite(value) else _tagged("float", repr(value))
    if kind is bytes:
        return _tagged("bytes", base64.b64encode(value).decode("ascii"))
    if kind not in (list, tuple, dict):
        raise no_value(name, value)
    if depth == _VALUE_DEPTH:
        raise UsageError(f"{name} is nested in more than {_VALUE_DEPTH} levels; use fewer.")
    if kind is dict:
        return _dict_to_json(value, name, depth)
    items = [to_json(item, f"{name}[{number}]", depth + 1) for number, item in enumerate(value)]
    return items if kind is list else _tagged("tuple", items)


def plain_scalar(value: Any) -> Any:
    """Return a number, bool or text of numpy as Python's; anything else as it is."""
    if isinstance(value, np.generic) and type(found := value.item()) in SCALARS:
        return found
    return value


def from_json(value: Any) -> Any:
    """Return the value that ``to_json`` made JSON of."""
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    if TAG not in value:
        return {key: from_json(item) for key, item in value.items()}
    try:
        kind, content = value[TAG]
        return _KINDS[kind](content)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"a tag is wrong: {error}") from error


def no_value(name: str, value: Any) -> UsageError:
    """Return the error of a value that cannot be kept in a file."""
    return UsageError(
        f"{name} is {type(value).__module__}.{type(value).__qualname__}, which cannot be kept in a "
        f"file. Expected a tensor, {ALLOWED}. Convert it, or leave it out of the rows."
    )


def _dict_to_json(value: dict[Any, Any], name: str, depth: int) -> Any:
    items = {key: to_json(item, f"{name}[{key!r}]", depth + 1) for key, item in value.items()}
    if all(type(key) is str for key in items) and TAG not in items:
        return items
    return _tagged("dict", [[to_json(key, name, depth + 1), item] for key, item in items.items()])


def _tagged(kind: str, content: Any) -> dict[str, list[Any]]:
    return {TAG: [kind, content]}


def _bytes(content: str) -> bytes:
    return base64.b64decode(content, validate=True)


_KINDS: dict[str, Callable[[Any], Any]] = {
    "bytes": _bytes,
    "float": float,
    "int": lambda digits: int(digits, 16),
    "tuple": lambda items: tuple(from_json(item) for item in items),
    "dict": lambda items: {from_json(key): from_json(item) for key, item in items},
}
