"""Specs as JSON values: plain data, without code to import or run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from datasets_cli.errors import Unsupported, UsageError
from datasets_cli.specs.bounded import Bounded, UnboundedContinuous, UnboundedDiscrete
from datasets_cli.specs.categorical import Binary, Categorical, MultiCategorical
from datasets_cli.specs.composite import Composite
from datasets_cli.specs.leaf import NonTensor, TextBox
from datasets_cli.specs.one_hot import MultiOneHot, OneHot
from datasets_cli.specs.spec import TensorSpec, torch_dtype

VERSION = 1
INFINITIES = {"inf": math.inf, "-inf": -math.inf}
"""Infinite numbers as text, because strict JSON does not have them."""


def spec_to_json(spec: TensorSpec) -> dict[str, Any]:
    """Return a spec as values that ``json.dumps`` writes; ``spec_from_json`` returns an equal spec.

    Raises:
        Unsupported: the example of a NonTensor is not a JSON value.
    """
    return {"version": VERSION, "spec": _entry(spec)}


def spec_from_json(data: Mapping[str, Any], device: str | torch.device | None = None) -> TensorSpec:
    """Return the spec of JSON values from ``spec_to_json``.

    Args:
        data: the parsed JSON.
        device: the device of values; None for the device in the data.

    Raises:
        UsageError: the data is not a spec, is damaged, or has another version.
    """
    version = data.get("version") if isinstance(data, Mapping) else None
    if version != VERSION:
        raise UsageError(
            f"The data must be a spec of version {VERSION}; found version {version!r}.",
            argument="data",
            expected=VERSION,
            found=version,
            advice="Update rlds-cli if the version is newer.",
        )
    try:
        return _spec(data["spec"], device)
    except UsageError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"The JSON of the spec is damaged: {error!r}.", argument="data") from error


def _entry(spec: Any) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": type(spec).__name__, "shape": [*spec.shape]}
    entry["device"] = None if spec.device is None else str(spec.device)
    if isinstance(spec, Composite):
        return {**entry, "specs": spec._each(_entry)}
    if isinstance(spec, NonTensor):
        return {**entry, "example_data": _plain(spec.example_data), "text": _text(spec.space)}
    entry["dtype"] = str(spec.dtype).removeprefix("torch.")
    if isinstance(spec, Bounded):
        entry |= {"low": _numbers(spec.low), "high": _numbers(spec.high)}
    elif isinstance(spec, Categorical | OneHot):
        entry["n"] = spec.n
    elif isinstance(spec, MultiCategorical | MultiOneHot):
        entry["nvec"] = spec.nvec.tolist()
    mask = spec.mask
    if mask is not None:
        entry["mask"] = mask.tolist()
    return entry


def _numbers(tensor: torch.Tensor) -> Any:
    """Return a tensor as one number if all are equal, else as nested lists."""
    if tensor.numel() == 0:
        return 0
    first = tensor.flatten()[0]
    is_one = bool((tensor == first).all())
    if tensor.dtype.is_floating_point:  # 0.0 equals -0.0
        is_one = is_one and bool((tensor.signbit() == first.signbit()).all())
    return _without_infinities(first.item() if is_one else tensor.tolist())


def _without_infinities(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_infinities(each) for each in value]
    is_infinite = isinstance(value, float) and math.isinf(value)
    return ("inf" if value > 0 else "-inf") if is_infinite else value


def _with_infinities(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_infinities(each) for each in value]
    return INFINITIES[value] if isinstance(value, str) else value


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(each) for key, each in value.items()}
    is_number = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    if value is None or isinstance(value, str) or is_number:
        return value
    raise Unsupported(f"The example of a NonTensor is not a JSON value: {value!r}.", found=value)


def _text(space: TextBox | None) -> dict[str, Any] | None:
    if space is None:
        return None
    lengths = {"min_length": space.min_length, "max_length": space.max_length}
    return {**lengths, "characters": "".join(sorted(space.characters))}


def _spec(entry: Mapping[str, Any], device: str | torch.device | None) -> TensorSpec:
    shape, place = tuple(entry["shape"]), device or entry["device"]
    kind = entry["type"]
    if kind == "Composite":
        specs = {
            name: None if inner is None else _spec(inner, device)
            for name, inner in entry["specs"].items()
        }
        # The device of a Composite may be None.
        return Composite(specs, shape=shape, device=place if entry["device"] else None)
    if kind == "NonTensor":
        text = entry["text"]
        box = None
        if text is not None:
            box = TextBox(text["min_length"], text["max_length"], frozenset(text["characters"]))
        place = place if entry["device"] else None
        return NonTensor(shape, place, example_data=entry["example_data"], space=box)
    if kind not in LEAVES:
        raise UsageError(
            f"Unknown type of spec {kind!r}.", argument="data", expected=[*LEAVES], found=kind
        )
    options = {"shape": shape, "device": place, "dtype": torch_dtype(entry["dtype"])}
    if "mask" in entry:
        options["mask"] = torch.tensor(entry["mask"], dtype=torch.bool)
    return LEAVES[kind](entry, options)


SpecMaker = Callable[[Mapping[str, Any], dict[str, Any]], TensorSpec]

LEAVES: dict[str, SpecMaker] = {
    "Bounded": lambda entry, options: Bounded(
        _bound(entry["low"], options["dtype"]), _bound(entry["high"], options["dtype"]), **options
    ),
    "UnboundedContinuous": lambda entry, options: UnboundedContinuous(**options),
    "UnboundedDiscrete": lambda entry, options: UnboundedDiscrete(**options),
    "Categorical": lambda entry, options: Categorical(entry["n"], **options),
    "OneHot": lambda entry, options: OneHot(entry["n"], **options),
    "MultiCategorical": lambda entry, options: MultiCategorical(entry["nvec"], **options),
    "MultiOneHot": lambda entry, options: MultiOneHot(entry["nvec"], **options),
    "Binary": lambda entry, options: Binary(**options),
}


def _bound(value: Any, dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor(_with_infinities(value), dtype=dtype)
