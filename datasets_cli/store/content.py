"""The identity of a dataset's data, equal for every layout, mirror and machine.

The identity of a published dataset covers everything that determines its values: the recipe and its
version, the successor rule and its version, and the names and sha256 of the publisher's files. For
your own data it covers the sha256 of the columns that ``--map`` selects. Files that only describe
the data do not count; entries of the metadata represent them. The identity of a derived dataset
covers its parent, the function, its arguments and the seed. All cover the id, the schema, and the
numbers of rows and trajectories: programs that convert differently get different identities.

The options of a variant are in its id, in one spelling (``Pong/5~ckpt0-5``). URLs, validators of
servers, checks, folders and texts of the publisher differ between downloads, and do not count.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from datasets_cli.schema.texts import AnyColumn

SUCCESSOR_RULE_VERSION = 2
"""Incremented whenever the rule of ``schema.transitions`` gives other values."""

Origin = Mapping[str, Any]
"""The origin of a dataset's values, as JSON."""


def content_of(
    id: str,
    origin: Origin,
    num_transitions: int,
    num_trajectories: int,
    columns: Iterable[AnyColumn],
) -> str:
    """Return the identity of a dataset, as 64 hexadecimal digits."""
    identity = {
        "id": id,
        **origin,
        "num_transitions": num_transitions,
        "num_trajectories": num_trajectories,
        "schema": sorted([list(c.key), c.dtype, list(c.shape)] for c in columns),
    }
    return hashlib.sha256(canonical_json(identity)).hexdigest()


def recipe_origin(
    recipe: Origin, successors: Origin, resources: Iterable[Origin], metadata: Origin
) -> Origin:
    """Return the origin of a dataset from a publisher's files."""
    files = (file for file in resources if not file.get("describes"))
    origin = {
        "recipe_version": recipe.get("version"),
        "successor_rule_version": successors.get("version"),
        "sources": sorted([file["filename"], source_digest(file)] for file in files),
    }
    if names := recipe.get("identity"):
        origin["metadata"] = {name: metadata.get(name) for name in names}
    return origin


def source_digest(file: Origin) -> str | None:
    """Return the sha256 that identifies a source: of the columns read, or of the whole file."""
    return file.get("columns_sha256") or file.get("sha256")


def derived_origin(parent: Origin, function: Origin, arguments: Origin, seed: int | None) -> Origin:
    """Return the origin of a derived dataset."""
    return {
        "parent": parent.get("content"),
        "function": function.get("digest"),
        "arguments": dict(arguments),
        "seed": seed,
    }


def canonical_json(value: Any) -> bytes:
    """Return JSON with sorted keys and no spaces, the same bytes for equal values."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return text.encode("ascii")
