"""What a function is: its name, and the digests of all that it is made of."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from datasets_cli.parallel.user_modules import UserModule
from datasets_cli.store.content import canonical_json

Parts = Mapping[str, str]
"""What something is made of, in words, and the digest of each."""


@dataclass(frozen=True)
class FunctionIdentity:
    """What a function or a pipeline is, the same on every machine."""

    # own_digest: of all but the modules of the user's that its file imports.
    # imported: the digests of these modules, as `codes_of` has them.
    # parts: what it is made of besides them, to say what has changed.
    # pipeline: what it is as data, if it is one.

    name: str
    own_digest: str
    imported: Parts = field(default_factory=dict)
    parts: Parts = field(default_factory=dict)
    pipeline: Mapping[str, Any] | None = None

    @property
    def digest(self) -> str:
        """The digest of all; of a function that imports no module of the user's, its own one."""
        if not self.imported:
            return self.own_digest
        return digest_of(["imports", self.own_digest, sorted(self.imported.items())])

    @property
    def all_parts(self) -> dict[str, str]:
        """What it is made of, those modules among it."""
        return {**self.parts, **self.imported}

    @property
    def entry(self) -> dict[str, Any]:
        """What a manifest says of it."""
        data = {"parts": self.all_parts} if self.pipeline is None else {"pipeline": self.pipeline}
        return {"name": self.name, "digest": self.digest, **data}

    def changes(self, made: Mapping[str, Any]) -> list[str]:
        """Return what has changed since a manifest's entry was made, one text for each change."""
        before = made.get("parts")
        # An entry without parts is older than the rule that imported modules count.
        digest = self.digest if before is not None else self.own_digest
        if made.get("digest") == digest:
            return []
        name = made.get("name")
        renamed = [f"the function {name}, now {self.name}"] if name != self.name else []
        changed = [] if before is None else changed_parts(before, self.all_parts)
        return renamed + changed or [f"the function {name}, now {name} after an edit"]


def changed_parts(before: Parts, now: Parts) -> list[str]:
    """Return what differs between two sets of parts, one text for each difference."""
    return [
        *(f"{part} changed" for part in now if part in before and now[part] != before[part]),
        *(f"{part} is new" for part in now if part not in before),
        *(f"{part} is gone" for part in before if part not in now),
    ]


def codes_of(modules: Iterable[UserModule]) -> dict[str, str]:
    """Return the digests of modules as parts; a module without text is known by its place alone."""
    digests = {f"code of {each.place}": each.digest or "" for each in modules}
    return dict(sorted(digests.items()))


def digest_of(description: Any) -> str:
    """Return the digest of JSON values."""
    return hashlib.sha256(canonical_json(description)).hexdigest()
