"""What the publisher of a dataset says of its numbers, and a mixture must not average."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from datasets_cli.replay.mixtures.column_map import ColumnMap
from datasets_cli.replay.storages.protocol import Storage

NAMES = {
    "discount": "discount",
    "gamma": "discount",
    "fps": "fps",
    "frames_per_second": "fps",
    "render_fps": "fps",
    "frame_rate": "fps",
    "frame_skip": "frame_skip",
    "frameskip": "frame_skip",
    "dt": "dt",
    "timestep": "dt",
}
"""What metadata call it, and what it is called here."""

ACTION_BOUNDS = "action_bounds"
FACTS = (*dict.fromkeys(NAMES.values()), ACTION_BOUNDS)
"""What is compared, where metadata say it."""

Facts = dict[str, Any]


def facts_of(storage: Storage, column_map: ColumnMap) -> Facts:
    """Return what is known of a member; nothing, where it is not a dataset."""
    dataset: Any = getattr(storage, "dataset", None)
    if dataset is None:
        return {}
    metadata: Mapping[str, Any] = dataset.manifest.metadata
    found = {NAMES[name]: value for name, value in _named(metadata) if _is_number(value)}
    space = _parsed(metadata.get("action_space"))
    if isinstance(space, Mapping) and {"low", "high"} <= space.keys():
        factors = column_map.scale.get(("action",), torch.tensor(1.0, dtype=torch.float64))
        low, high = (_scaled(space[end], factors) for end in ("low", "high"))
        found[ACTION_BOUNDS] = [low, high]
    return found


def _named(metadata: Any) -> Iterator[tuple[str, Any]]:
    """Yield the entries of metadata that have one of the names, at any depth."""
    metadata = _parsed(metadata)
    if not isinstance(metadata, Mapping):
        return
    for name, value in metadata.items():
        if str(name).lower() in NAMES:
            yield str(name).lower(), value
        elif name not in ("action_space", "observation_space"):
            yield from _named(value)


def _parsed(value: Any) -> Any:
    """Return what a text of JSON says, as Minari keeps spaces; else the value."""
    if isinstance(value, str) and value[:1] == "{":
        try:
            return json.loads(value)
        except json.JSONDecodeError:
            return value
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _scaled(bounds: Any, factors: torch.Tensor) -> Any:
    """Return bounds as nested lists, or as one number where they are all the same."""
    scaled = torch.as_tensor(bounds, dtype=torch.float64) * factors
    first = scaled.flatten()[:1]
    is_one = bool(scaled.numel()) and bool((scaled == first).all())
    return float(first) if is_one else scaled.tolist()
