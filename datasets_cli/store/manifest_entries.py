"""What the entries of a manifest must have, so that no code after the reader meets another type.

They stay objects of JSON, with whatever else they have.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from datasets_cli.checked_json import Check, has_fields_of
from datasets_cli.store.schema.columns import Count

STATES = ("installed", "unchecked", "unverified")
"""How far the raw files of a dataset without damage are known to be the publisher's."""

Digest = Annotated[str, Check("64 hexadecimal digits", re.compile("[0-9a-f]{64}").fullmatch)]
State = Annotated[str, Check(f"one of {', '.join(STATES)}", STATES.__contains__)]


@dataclass(frozen=True)
class _File:
    bytes: Count
    sha256: Digest


@dataclass(frozen=True)
class _Resource:
    filename: str
    sha256: Digest
    url: str = ""
    bytes: Count = 0
    validator: str | None = None
    checked: str = ""
    describes: bool = False


@dataclass(frozen=True)
class _Recipe:
    family: str = ""
    version: int | None = None
    licence: str | None = None
    citation: str | None = None
    homepage: str | None = None
    identity: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Successors:
    rule: str = ""
    version: int = 1


@dataclass(frozen=True)
class _Metadata:
    notes: tuple[str, ...] = ()
    licence: str | None = None
    citation: str | None = None
    ref_min_score: float | None = None
    ref_max_score: float | None = None


@dataclass(frozen=True)
class _Parent:
    id: str
    content: Digest = ""
    state: State = ""
    view: str = ""
    where: str = ""
    max_trajectories: Count = 0
    dropped: str = ""


@dataclass(frozen=True)
class _Function:
    name: str
    digest: Digest
    pipeline: Mapping[str, Any] | None = None


_is_function = has_fields_of(_Function)

Files = Mapping[str, Annotated[Mapping[str, Any], has_fields_of(_File)]]
Resources = tuple[Annotated[Mapping[str, Any], has_fields_of(_Resource)], ...]
Recipe = Annotated[Mapping[str, Any], has_fields_of(_Recipe)]
Successors = Annotated[Mapping[str, Any], has_fields_of(_Successors)]
Metadata = Annotated[Mapping[str, Any], has_fields_of(_Metadata)]
Parent = Annotated[Mapping[str, Any], has_fields_of(_Parent)]
Function = Annotated[  # empty where not derived
    Mapping[str, Any], Check("an object", lambda value: not value or _is_function.holds(value))
]
Statistics = Mapping[str, Mapping[str, float | None]]
Arguments = Mapping[str, int | str | None]
