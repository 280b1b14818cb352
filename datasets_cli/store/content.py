"""A dataset's identity: which data it holds, whatever layout, mirror or machine made the files.

A dataset of a recipe is known by what decides its values: the recipe and its version, the rule of
successors and its version, and the publisher's files. A derived one is known by its parent, the
function, its arguments and the seed. Rows, trajectories and schema are in both, so that two
programs that convert differently never give the same name to different data.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from datasets_cli.store.schema.texts import TEXT

if TYPE_CHECKING:
    from datasets_cli.store.manifest import Manifest

SUCCESSOR_RULE_VERSION = 1
"""Raised whenever the rule of ``store.schema.transitions`` gives other values."""


def content_of(manifest: Manifest) -> str:
    """Return the sha256 of what decides a dataset's values, as 64 hexadecimal digits."""
    schema = [[list(c.key), c.dtype, list(c.shape)] for c in manifest.columns]
    schema += [[list(text.key), TEXT, list(text.shape)] for text in manifest.texts]
    identity: dict[str, Any] = {
        "id": manifest.id,
        "recipe_version": manifest.recipe.get("version"),
        "successor_rule_version": manifest.successors.get("version", SUCCESSOR_RULE_VERSION),
        "sources": sorted([file["filename"], file["sha256"]] for file in manifest.resources),
        "parent": manifest.parent,
        "num_transitions": manifest.num_transitions,
        "num_trajectories": manifest.num_trajectories,
        "schema": sorted(schema),
    }
    return hashlib.sha256(canonical_json(identity)).hexdigest()


def canonical_json(value: Any) -> bytes:
    """Return JSON with sorted keys and no spaces, the same bytes for equal values."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return text.encode("ascii")
