"""What the entries of a manifest must have, so that no code after the reader meets another type.

They stay objects of JSON, with whatever else they have.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from datasets_cli.checked_json import Check, has
from datasets_cli.schema.columns import Count

STATES = ("installed", "unchecked", "unverified")
"""How far the raw files of a dataset without damage are known to be the publisher's."""

Digest = Annotated[str, Check("64 hexadecimal digits", re.compile("[0-9a-f]{64}").fullmatch)]
State = Annotated[str, Check(f"one of {', '.join(STATES)}", STATES.__contains__)]
TextOrNull = str | None
NumberOrNull = float | None

_Object = Mapping[str, Any]
_is_function = has(
    {"name": str, "digest": Digest}, **{"pipeline": _Object, "parts": Mapping[str, str]}
)

Files = Mapping[str, Annotated[_Object, has({"bytes": Count, "sha256": Digest})]]
Resource = Annotated[
    _Object,
    has(
        {"filename": str, "sha256": Digest},
        **{"url": str, "bytes": Count, "validator": TextOrNull, "checked": str, "describes": bool},
    ),
]
Recipe = Annotated[
    _Object,
    has(
        {},
        **{"family": str, "version": int | None, "identity": tuple[str, ...]},
        **{"licence": TextOrNull, "citation": TextOrNull, "homepage": TextOrNull},
    ),
]
Successors = Annotated[_Object, has({}, rule=str, version=int)]
Metadata = Annotated[
    _Object,
    has(
        {},
        **{"notes": tuple[str, ...], "licence": TextOrNull, "citation": TextOrNull},
        **{"ref_min_score": NumberOrNull, "ref_max_score": NumberOrNull},
    ),
]
Parent = Annotated[
    _Object,
    has(
        {"id": str},
        **{"content": Digest, "manifest_sha256": Digest, "state": State, "view": str},
        **{"where": str, "max_trajectories": Count, "dropped": str},
    ),
]
Function = Annotated[  # empty where not derived
    _Object, Check("an object", lambda value: not value or _is_function.holds(value))
]
Statistics = Mapping[str, Mapping[str, NumberOrNull]]
Arguments = Mapping[str, int | str | None]
